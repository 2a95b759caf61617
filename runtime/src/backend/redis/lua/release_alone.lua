-- Ends an owner's hold without a look at the queue: for a slot that is on its way to another node of
-- a cluster, where no script can have a lock and a queue that is not there. Contenders that have a
-- place go by their timers.
--
-- KEYS[1]  lock   string: the owner
-- ARGV[1]  owner
--
-- Returns 1  it was the owner's and is free now
--         2  nobody holds it
--         3  another owner holds it
--         4  what stands there is no lock: a string without TTL, or another type

local FREED, GONE, TAKEN, FOREIGN = 1, 2, 3, 4

local lock, owner = KEYS[1], ARGV[1]

local holder = redis.pcall('GET', lock)
if not holder then
  return GONE
end
if type(holder) == 'table' then
  if string.sub(holder.err, 1, 9) == 'WRONGTYPE' then
    return FOREIGN
  end
  return holder
end
if holder ~= owner then
  if redis.call('PTTL', lock) == -1 then
    return FOREIGN
  end
  return TAKEN
end
redis.call('DEL', lock)
return FREED
