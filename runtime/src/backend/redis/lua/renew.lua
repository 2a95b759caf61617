-- Sets the TTLs of locks that their owners still hold. A TTL never gets shorter: so renewals may
-- arrive late or in any order, and each one that was confirmed stays true.
--
-- KEYS[i]       lock      string: the owner
-- ARGV[2i - 1]  owner     who should hold KEYS[i]
-- ARGV[2i]      lease_ms  the TTL that it gets at least
--
-- Returns one code for each key, in order:
--         1  renewed
--         2  nobody holds it
--         3  another owner holds it
--         4  this key cannot be read as a lock (another type stands there)

local RENEWED, GONE, TAKEN, FOREIGN = 1, 2, 3, 4

local codes = {}
for i, lock in ipairs(KEYS) do
  local owner, lease_ms = ARGV[2 * i - 1], ARGV[2 * i]
  local holder = redis.pcall('GET', lock)
  if type(holder) == 'table' then
    codes[i] = FOREIGN
  elseif not holder then
    codes[i] = GONE
  elseif holder ~= owner then
    codes[i] = TAKEN
  else
    -- Written even if it stays as it is: a server that refuses writes must confirm nothing.
    local reply = redis.pcall('PEXPIRE', lock, lease_ms, 'GT')
    if reply ~= 1 then
      -- It lasts longer already, or the server is older than GT (7.0), or says why it refuses.
      local ttl_ms = math.max(redis.call('PTTL', lock), tonumber(lease_ms))
      reply = redis.pcall('PEXPIRE', lock, ttl_ms)
    end
    if type(reply) == 'table' then
      -- What forbids this write (read-only, no replicas, ...) forbids them all.
      return reply
    end
    codes[i] = RENEWED
  end
end
return codes
