-- Raises the last fencing token of a lock, if it is the owner's: what several servers drew becomes one
-- token, and none of them draws a lower one after it.
--
-- KEYS[1]  lock      string: the owner
-- KEYS[2]  fence     string: the last token drawn for this lock
-- ARGV[1]  owner
-- ARGV[2]  token     what the counter is at least from now on
-- ARGV[3]  keep_ms   how long the counter outlives this
--
-- Returns the last token now, or if the lock is not the owner's: who holds it, nil if nobody does.

local lock, fence = KEYS[1], KEYS[2]
local owner, token, keep_ms = ARGV[1], tonumber(ARGV[2]), ARGV[3]

local holder = redis.pcall('GET', lock)
if holder ~= owner then
  -- A text, nothing, or an error (another type stands there) that goes to the caller as it is.
  return holder
end
token = math.max(token, tonumber(redis.call('GET', fence) or '0'))
redis.call('SET', fence, string.format('%.0f', token), 'PX', keep_ms)
return token
