-- Draws the next fencing token of a lock without a look at the lock: for a slot of a cluster that is
-- on its way to another node, where no script can see both. Who draws must hold the lock, and see
-- afterwards that it still does.
--
-- The token is as in draw.lua.
--
-- KEYS[1]  fence    string: the last token drawn for this lock
-- ARGV[1]  keep_ms  how long the counter outlives the last draw
--
-- Returns the token.

local fence, keep_ms = KEYS[1], ARGV[1]

local time = redis.call('TIME')
local token = time[1] * 1000000 + time[2]
local last = redis.call('SET', fence, string.format('%.0f', token), 'PX', keep_ms, 'GET')
if last and tonumber(last) >= token then
  token = tonumber(last) + 1
  redis.call('SET', fence, string.format('%.0f', token), 'PX', keep_ms)
end
return token
