-- Draws the next fencing token for the owner of a lock, who may take the lock by it if it is free.
--
-- KEYS[1]  lock      string: the owner
-- KEYS[2]  fence     stream, always empty: its last identifier is the last token
-- ARGV[1]  owner
-- ARGV[2]  lease_ms  TTL of the lock if it is free, 0 to leave it so
--
-- Returns the token, or if the lock is not the owner's: who holds it, nil if nobody does.

local PER_MILLI = 2048

local lock, fence = KEYS[1], KEYS[2]
local owner, lease_ms = ARGV[1], ARGV[2]

local taken = lease_ms ~= '0' and redis.call('SET', lock, owner, 'NX', 'PX', lease_ms)
if not taken then
  local holder = redis.pcall('GET', lock)
  if holder ~= owner then
    -- A text, nothing, or an error (another type stands there) that goes to the caller as it is.
    return holder
  end
end

local id = redis.pcall('XADD', fence, 'NOMKSTREAM', 'MAXLEN', 0, '*', '', '')
if type(id) == 'table' then
  -- Another type where the counter should be is not the lock's fault.
  return string.sub(id.err, 1, 9) == 'WRONGTYPE' and redis.error_reply('FENCE ' .. id.err) or id
end
local ms, number
if id then
  ms, number = string.match(id, '^(%d+)-(%d+)$')
  ms, number = tonumber(ms), tonumber(number)
else
  -- There is none, or none any more, perhaps since this very millisecond. So it begins by the clock's
  -- microseconds, with two numbers for each: a draw takes one, and longer than half a microsecond.
  local time = redis.call('TIME')
  ms = time[1] * 1000 + math.floor(time[2] / 1000)
  number = time[2] % 1000 * 2
end
if number >= PER_MILLI then
  -- The clock has stood still, or behind, for long: on to where the numbers are few again.
  ms, number = ms + math.floor(number / PER_MILLI), number % PER_MILLI
  id = false
end
if not id then
  redis.call('XADD', fence, 'MAXLEN', 0, string.format('%.0f-%.0f', ms, number), '', '')
end
return ms * PER_MILLI + number
