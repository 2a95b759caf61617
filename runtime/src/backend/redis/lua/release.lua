-- Ends an owner's hold and its place in the queue: grants the lock to the next contender in the
-- same step, so that nobody comes in between, or frees it.
--
-- KEYS[1]  lock      string: the owner
-- KEYS[2]  queue     sorted set: contender -> ticket, the lowest is next
-- KEYS[3]  waiters   hash: contender -> "<deadline_ms> <channel>"
-- ARGV[1]  owner
-- ARGV[2]  claim_ms  TTL of a granted lock until its new owner confirms it
--
-- Returns 1  it was the owner's and is free now
--         2  nobody holds it
--         3  another owner holds it
--         4  what stands there is no lock: a string without TTL, or another type
--         a string: the contender whose lock it is now
--
-- Publishes "grant\n<contender>\n<lock>" to the channel of the new owner, and
-- "next\n<claim_ms>\n<contender>\n<lock>" to the one after it. A grant may also reach contenders
-- that this server believes out of reach; they find at their confirmation that it was not for them.

local FREED, GONE, TAKEN, FOREIGN = 1, 2, 3, 4
-- So many places one run looks at, so that it cannot block the server.
local PLACES_PER_RUN = 64

local lock, queue, waiters = KEYS[1], KEYS[2], KEYS[3]
local owner, claim_ms = ARGV[1], ARGV[2]

local function forget(contender)
  redis.call('ZREM', queue, contender)
  redis.call('HDEL', waiters, contender)
end

local function free()
  redis.call('DEL', lock)
  return FREED
end

local contended = redis.call('EXISTS', queue) == 1
if contended then
  forget(owner)
end

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
if not contended then
  return free()
end

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

-- The live places in ticket order, up to the one after the chosen one.
local live, chosen = {}, nil
for _, contender in ipairs(redis.call('ZRANGE', queue, 0, PLACES_PER_RUN - 1)) do
  local place = redis.call('HGET', waiters, contender) or ''
  local deadline_ms, channel = string.match(place, '^(%d+) (.*)$')
  if not deadline_ms or tonumber(deadline_ms) <= now_ms then
    forget(contender)
  else
    live[#live + 1] = {owner = contender, channel = channel}
    if chosen then
      break
    end
    if channel == '' and #live == 1 then
      -- The next one cannot hear. A grant would stand idle for the whole claim, and granting past it
      -- would starve it: all go by their timers.
      return free()
    end
    if channel ~= '' then
      local receivers = redis.pcall('PUBLISH', channel, 'grant\n' .. contender .. '\n' .. lock)
      if type(receivers) == 'table' then
        -- Publishing is forbidden here, so nobody would hear of a grant.
        return free()
      end
      if receivers > 0 then
        chosen = #live
      end
    end
  end
end
if #live == 0 then
  return free()
end

-- Nobody in reach: the counts know this node only, and a client may be about to reconnect. The first
-- one gets the lock all the same, for the short claim.
chosen = chosen or 1
local heir = live[chosen].owner
redis.call('SET', lock, heir, 'PX', claim_ms)
forget(heir)
local after = live[chosen + 1]
if after and after.channel ~= '' then
  redis.pcall(
    'PUBLISH', after.channel, 'next\n' .. claim_ms .. '\n' .. after.owner .. '\n' .. lock
  )
end
return heir
