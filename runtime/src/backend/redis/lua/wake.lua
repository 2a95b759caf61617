-- Tells the contender at the head of a queue that the lock may be free, and the one after it when to
-- look if the head does not take it. Changes nothing. For a lock whose release grants it to nobody: on
-- a quorum, and in a slot of a cluster that is on its way to another node.
--
-- KEYS[1]  queue     sorted set: contender -> ticket, the lowest is next
-- KEYS[2]  waiters   hash: contender -> "<deadline_ms> <channel>"
-- ARGV[1]  lock      whose queue it is
-- ARGV[2]  claim_ms  how long the head has
--
-- Returns 1 if anybody was told, else 0.
--
-- Publishes "next\n<after_ms>\n<contender>\n<lock>" to the channels of both.

local queue, waiters = KEYS[1], KEYS[2]
local lock, claim_ms = ARGV[1], ARGV[2]
-- So many places one run looks at, as at a release.
local PLACES_PER_RUN = 64

local places = redis.call('ZRANGE', queue, 0, PLACES_PER_RUN - 1)
if #places == 0 then
  return 0
end
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

local told = 0
for _, contender in ipairs(places) do
  local place = redis.call('HGET', waiters, contender) or ''
  local deadline_ms, channel = string.match(place, '^(%d+) (.*)$')
  if deadline_ms and tonumber(deadline_ms) > now_ms and channel ~= '' then
    local after_ms = told == 0 and '0' or claim_ms
    local message = 'next\n' .. after_ms .. '\n' .. contender .. '\n' .. lock
    -- A contender in a cluster names a channel of its shard.
    local sharded = string.sub(channel, 1, 15) == 'distlock:shard:'
    local receivers = redis.pcall(sharded and 'SPUBLISH' or 'PUBLISH', channel, message)
    if type(receivers) == 'table' then
      -- Publishing is forbidden here: all go by their timers.
      break
    end
    if receivers > 0 then
      told = told + 1
      if told == 2 then
        break
      end
    end
  end
end
return math.min(told, 1)
