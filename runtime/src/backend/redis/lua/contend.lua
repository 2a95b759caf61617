-- Takes a free lock, or takes or refreshes a place in the queue of its contenders.
--
-- KEYS[1]  lock      string: the owner
-- KEYS[2]  queue     sorted set: contender -> ticket, the lowest is next
-- KEYS[3]  waiters   hash: contender -> "<deadline_ms> <channel>"
-- ARGV[1]  owner     or "<contender>~<round>": the lock is for the whole, the place the contender's
-- ARGV[2]  lease_ms  TTL of the lock if it is free
-- ARGV[3]  keep_ms   how long the place lasts unless it is refreshed
-- ARGV[4]  channel   where the owner hears of a grant; empty if it cannot hear
--
-- Returns 1  it was free and is the owner's now
--         2  it is the owner's already
--         3  what stands there is no lock: a string without TTL, or another type
--         {holder, remaining_ms, ahead}  queued behind `ahead` others
--
-- Deadlines are by this server's clock. A lock found free is taken whatever the queue says: after a
-- crash, order comes from the contenders' timers.

local GRANTED, MINE, FOREIGN = 1, 2, 3
local DEAD_PLACES_PER_RUN = 16

local lock, queue, waiters = KEYS[1], KEYS[2], KEYS[3]
local owner, lease_ms, keep_ms, channel = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local contender = string.match(owner, '^(.*)~%d+$') or owner

local function forget(dead)
  redis.call('ZREM', queue, dead)
  redis.call('HDEL', waiters, dead)
end

local holder = redis.pcall('GET', lock)
if not holder then
  redis.call('SET', lock, owner, 'PX', lease_ms)
  forget(contender)
  return GRANTED
end
if type(holder) == 'table' then
  if string.sub(holder.err, 1, 9) == 'WRONGTYPE' then
    return FOREIGN
  end
  return holder
end
if holder == owner then
  forget(contender)
  return MINE
end
local remaining_ms = redis.call('PTTL', lock)
if remaining_ms == -1 then
  return FOREIGN
end

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

-- Processes that died in the queue must not count as ahead for ever. A few at a time: this runs
-- often, and nothing else can run meanwhile.
for _ = 1, DEAD_PLACES_PER_RUN do
  local head = redis.call('ZRANGE', queue, 0, 0)[1]
  if not head or head == contender then
    break
  end
  local deadline_ms = string.match(redis.call('HGET', waiters, head) or '', '^%d+')
  if deadline_ms and tonumber(deadline_ms) > now_ms then
    break
  end
  forget(head)
end

-- A refresh keeps its ticket, also if it comes late: whoever is still in line has not lost its turn.
if not redis.call('ZSCORE', queue, contender) then
  local last = redis.call('ZREVRANGE', queue, 0, 0, 'WITHSCORES')
  redis.call('ZADD', queue, (tonumber(last[2]) or 0) + 1, contender)
end
redis.call('HSET', waiters, contender, string.format('%.0f %s', now_ms + tonumber(keep_ms), channel))

-- Both keys live as long as the place that lasts longest, so that a queue of dead processes goes.
for _, key in ipairs({queue, waiters}) do
  if redis.call('PTTL', key) < tonumber(keep_ms) then
    redis.call('PEXPIRE', key, keep_ms)
  end
end

return {holder, math.max(remaining_ms, 0), redis.call('ZRANK', queue, contender)}
