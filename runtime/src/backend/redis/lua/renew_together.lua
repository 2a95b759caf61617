-- Sets the TTLs of locks that their owners still hold, in any slots of one node of a cluster: none is
-- declared as a key, for declared keys must share a slot. A TTL never gets shorter, as in renew.lua.
--
-- KEYS[i]          none
-- ARGV[3i - 2]     lock      string: the owner
-- ARGV[3i - 1]     owner     who should hold it
-- ARGV[3i]         lease_ms  the TTL that it gets at least
--
-- Returns one code for each lock, in order:
--         1  renewed
--         2  nobody holds it
--         3  another owner holds it
--         4  this key cannot be read as a lock (another type stands there)
--         5  this node cannot look at the key: it does not serve the slot, or not all of it

local RENEWED, GONE, TAKEN, FOREIGN, ELSEWHERE = 1, 2, 3, 4, 5

local codes = {}
for i = 1, #ARGV / 3 do
  local lock, owner, lease_ms = ARGV[3 * i - 2], ARGV[3 * i - 1], ARGV[3 * i]
  local holder = redis.pcall('GET', lock)
  if type(holder) == 'table' then
    codes[i] = string.sub(holder.err, 1, 9) == 'WRONGTYPE' and FOREIGN or ELSEWHERE
  elseif not holder then
    codes[i] = GONE
  elseif holder ~= owner then
    codes[i] = TAKEN
  else
    -- Written even if it stays as it is: a server that refuses writes must confirm nothing.
    local ttl_ms = math.max(redis.call('PTTL', lock), tonumber(lease_ms))
    local reply = redis.pcall('PEXPIRE', lock, ttl_ms)
    codes[i] = type(reply) == 'table' and ELSEWHERE or RENEWED
  end
end
return codes
