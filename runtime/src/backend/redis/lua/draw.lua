-- Draws the next fencing token for the owner of a lock, who may take the lock by it if it is free.
--
-- A token is the server's clock in microseconds, or one more than the last token if that is higher:
-- so tokens grow while the counter is there, whatever the clock does, and when the counter is gone
-- they still grow as long as the clock is not behind the last one. (A hybrid logical clock; 53 bits,
-- which a Lua number holds, last until the year 2255.)
--
-- KEYS[1]  lock      string: the owner
-- KEYS[2]  fence     string: the last token drawn for this lock
-- ARGV[1]  owner
-- ARGV[2]  lease_ms  TTL of the lock if it is free, 0 to leave it so
-- ARGV[3]  keep_ms   how long the counter outlives the last draw
--
-- Returns the token, or if the lock is not the owner's: who holds it, nil if nobody does.

local lock, fence = KEYS[1], KEYS[2]
local owner, lease_ms, keep_ms = ARGV[1], ARGV[2], ARGV[3]

local taken = lease_ms ~= '0' and redis.call('SET', lock, owner, 'NX', 'PX', lease_ms)
if not taken then
  local holder = redis.pcall('GET', lock)
  if holder ~= owner then
    -- A text, nothing, or an error (another type stands there) that goes to the caller as it is.
    return holder
  end
end

local time = redis.call('TIME')
local token = time[1] * 1000000 + time[2]
local last = redis.call('SET', fence, string.format('%.0f', token), 'PX', keep_ms, 'GET')
if last and tonumber(last) >= token then
  token = tonumber(last) + 1
  redis.call('SET', fence, string.format('%.0f', token), 'PX', keep_ms)
end
return token
