-- Says who holds a lock, and for how long if nobody renews it.
--
-- KEYS[1]  lock  string: the owner
--
-- Returns nil if nobody holds it, else {owner, remaining_ms}; remaining_ms is -1 without TTL.

local holder = redis.pcall('GET', KEYS[1])
if not holder then
  return false
end
if type(holder) == 'table' then
  return holder
end
return {holder, redis.call('PTTL', KEYS[1])}
