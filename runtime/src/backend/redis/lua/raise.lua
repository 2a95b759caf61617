-- Raises the last fencing token, if a lock is the owner's: what several servers drew becomes one token,
-- and none of them draws a lower one after it.
--
-- KEYS[1]  lock      string: the owner
-- KEYS[2]  fence     stream, always empty: its last identifier is the last token
-- ARGV[1]  owner
-- ARGV[2]  token     what the counter is at least from now on
--
-- Returns the token, or if the lock is not the owner's: who holds it, nil if nobody does.

local PER_MILLI = 2048

local lock, fence = KEYS[1], KEYS[2]
local owner, token = ARGV[1], tonumber(ARGV[2])

local holder = redis.pcall('GET', lock)
if holder ~= owner then
  -- A text, nothing, or an error (another type stands there) that goes to the caller as it is.
  return holder
end
local id = string.format('%.0f-%.0f', math.floor(token / PER_MILLI), token % PER_MILLI)
local raised = redis.pcall('XADD', fence, 'MAXLEN', 0, id, '', '')
-- Refused if the counter is there already.
if type(raised) == 'table' and not string.find(raised.err, 'equal or smaller', 1, true) then
  -- Another type where the counter should be is not the lock's fault.
  local misplaced = string.sub(raised.err, 1, 9) == 'WRONGTYPE'
  return misplaced and redis.error_reply('FENCE ' .. raised.err) or raised
end
return token
