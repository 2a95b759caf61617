-- Takes a free lock, or names its owner: what `SET lock owner NX GET PX lease_ms` does in one
-- command, for servers older than Redis 7.
--
-- KEYS[1]  lock      string: the owner
-- ARGV[1]  owner
-- ARGV[2]  lease_ms  TTL of the lock
--
-- Returns nil if the lock was free and is the owner's now, else who holds it.

local holder = redis.pcall('GET', KEYS[1])
if holder then
  -- A text, or an error (another type stands there) that goes to the caller as it is.
  return holder
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return false
