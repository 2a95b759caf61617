-- Ends owners' holds and their places in the queues: grants each lock to its next contender in the
-- same step, so that nobody comes in between, or frees it.
--
-- KEYS[3i - 2]  lock      string: the owner
-- KEYS[3i - 1]  queue     sorted set: contender -> ticket, the lowest is next
-- KEYS[3i]      waiters   hash: contender -> "<deadline_ms> <channel>"
-- ARGV[1]       claim_ms  TTL of a granted lock until its new owner confirms it; 0: grants to nobody,
--                         and tells nobody but the caller
-- ARGV[i + 1]   owner     who gives up KEYS[3i - 2], or "<contender>~<round>": the lock is the whole's,
--                         the place the contender's
--
-- Returns one answer for each lock, in order; that of a single one by itself:
--         1  it was the owner's and is free now
--         2  nobody holds it
--         3  another owner holds it
--         4  what stands there is no lock: a string without TTL, or another type
--         5  it was the owner's and is free now, and others queue for it, who were not told
--         a string: the contender whose lock it is now
--
-- Publishes "grant\n<contender>\n<lock>" to the channel of the new owner, and
-- "next\n<claim_ms>\n<contender>\n<lock>" to the one after it. A grant may also reach contenders
-- that this server believes out of reach; they find at their confirmation that it was not for them.

local FREED, GONE, TAKEN, FOREIGN, FREED_UNTOLD = 1, 2, 3, 4, 5
-- So many places are looked at for one lock, so that it cannot block the server.
local PLACES = 64

-- The usual cases before all else: what follows takes as long again only to be set up.
if #ARGV == 2 then
  local lock, queue, waiters, claim_ms, owner = KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2]
  local contended = redis.call('EXISTS', queue) == 1
  if redis.pcall('GET', lock) == owner then
    if not contended then
      redis.call('DEL', lock)
      return FREED
    end
    -- To the first in line, if it is alive and within reach, so is the second if there is one, and the
    -- owner itself has no place. All else is decided below, as if nothing had been tried.
    local line = redis.call('ZRANGE', queue, 0, 1)
    local heir, after = line[1], line[2]
    local has_place = heir == owner or after and redis.call('HGET', waiters, owner)
    if claim_ms ~= '0' and not has_place and not string.find(owner, '~', 1, true) then
      local place = '^(%d+) (.+)$'
      local until_ms, channel = string.match(redis.call('HGET', waiters, heir) or '', place)
      local after_until_ms, after_channel = until_ms, nil
      if after then
        after_until_ms, after_channel = string.match(redis.call('HGET', waiters, after) or '', place)
      end
      local time = redis.call('TIME')
      local now_ms = time[1] * 1000 + time[2] / 1000
      if tonumber(until_ms or 0) > now_ms and tonumber(after_until_ms or 0) > now_ms then
        -- A contender in a cluster names a channel of its shard.
        local sharded = string.sub(channel, 1, 15) == 'distlock:shard:'
        local publish = sharded and 'SPUBLISH' or 'PUBLISH'
        local receivers = redis.pcall(publish, channel, 'grant\n' .. heir .. '\n' .. lock)
        if type(receivers) == 'number' and receivers > 0 then
          -- Before the SET: a server out of memory allows it to a script that has begun to write.
          if after then
            redis.call('ZREM', queue, heir)
            redis.call('HDEL', waiters, heir)
          else
            redis.call('DEL', queue, waiters)
          end
          redis.call('SET', lock, heir, 'PX', claim_ms)
          if after then
            local news = 'next\n' .. claim_ms .. '\n' .. after .. '\n' .. lock
            redis.pcall(publish, after_channel, news)
          end
          return heir
        end
      end
    end
  end
end

local claim_ms = ARGV[1]

local function free(lock)
  redis.call('DEL', lock)
  return FREED
end

local function forget(queue, waiters, contender)
  redis.call('ZREM', queue, contender)
  redis.call('HDEL', waiters, contender)
end

-- A contender in a cluster names a channel of its shard.
local function publish(channel, message)
  local sharded = string.sub(channel, 1, 15) == 'distlock:shard:'
  return redis.pcall(sharded and 'SPUBLISH' or 'PUBLISH', channel, message)
end

-- Grants a lock to the next live contender, if there is one in reach of messages.
local function pass_on(lock, queue, waiters)
  local time = redis.call('TIME')
  local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

  -- The live places in ticket order, up to the one after the chosen one.
  local live, chosen = {}, nil
  for _, contender in ipairs(redis.call('ZRANGE', queue, 0, PLACES - 1)) do
    local place = redis.call('HGET', waiters, contender) or ''
    local deadline_ms, channel = string.match(place, '^(%d+) (.*)$')
    if not deadline_ms or tonumber(deadline_ms) <= now_ms then
      forget(queue, waiters, contender)
    else
      live[#live + 1] = {owner = contender, channel = channel}
      if chosen then
        break
      end
      if channel == '' and #live == 1 then
        -- The next one cannot hear. A grant would stand idle for the whole claim, and granting past
        -- it would starve it: all go by their timers.
        return free(lock)
      end
      if channel ~= '' then
        local receivers = publish(channel, 'grant\n' .. contender .. '\n' .. lock)
        if type(receivers) == 'table' then
          -- Publishing is forbidden here, so nobody would hear of a grant.
          return free(lock)
        end
        if receivers > 0 then
          chosen = #live
        end
      end
    end
  end
  if #live == 0 then
    return free(lock)
  end

  -- Nobody in reach: the counts know this node only, and a client may be about to reconnect. The
  -- first one gets the lock all the same, for the short claim.
  chosen = chosen or 1
  local heir = live[chosen].owner
  redis.call('SET', lock, heir, 'PX', claim_ms)
  forget(queue, waiters, heir)
  local after = live[chosen + 1]
  if after and after.channel ~= '' then
    publish(after.channel, 'next\n' .. claim_ms .. '\n' .. after.owner .. '\n' .. lock)
  end
  return heir
end

local function release(lock, queue, waiters, owner)
  local contended = redis.call('EXISTS', queue) == 1
  if contended then
    forget(queue, waiters, string.match(owner, '^(.*)~%d+$') or owner)
  end
  local holder = redis.pcall('GET', lock)
  if holder == owner then
    if not contended then
      return free(lock)
    end
    if claim_ms ~= '0' then
      return pass_on(lock, queue, waiters)
    end
    free(lock)
    return redis.call('EXISTS', queue) == 1 and FREED_UNTOLD or FREED
  end
  if not holder then
    return GONE
  end
  if type(holder) == 'string' then
    return redis.call('PTTL', lock) == -1 and FOREIGN or TAKEN
  end
  -- An error: another type stands there, or what forbids this read forbids them all.
  return string.sub(holder.err, 1, 9) == 'WRONGTYPE' and FOREIGN or holder
end

local answers = {}
for i = 1, #ARGV - 1 do
  local answer = release(KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i], ARGV[i + 1])
  if type(answer) == 'table' then
    return answer
  end
  answers[i] = answer
end
return #answers == 1 and answers[1] or answers
