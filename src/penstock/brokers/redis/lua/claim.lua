-- Hand out due jobs of the lanes that are offered, where no rule but pauses is in force.
-- KEYS[1] is the prefix.
-- ARGV: now, version of the rules, #lanes that the caller knows, worker, its row as the caller knows
--       it, its row from now on, limit, #tasks, { most jobs of the task }*,
--       #queues, { when it was handed out last: a number that counts up }*,
--       { lane8, priority, number of its task, of its queue, 1 where it is offered }*
-- The lanes are sorted by their hash. Answers { word } where the caller has to do something first:
-- "locked", "rules", "lanes", "python" (a job that only Python can claim), "worker" and its row;
-- else { "", when the next job is due or "", { id, row as it is now }* }. Writes nothing before all is read.
local P, call, sub, byte = KEYS[1], redis.call, string.sub, string.byte
local FLAGS, HEAD, SPARED, PYTHON = 22, 24, 1, 2
local TASK, QUEUE, PRIORITY, DONE = 8, 9, 10, 11 -- of an offer
local function length_of(row) return byte(row, 23) * 256 + byte(row, 24) end
local MOST_SUSPECTS, AT_ONCE = 128, 500
if call('EXISTS', P .. 'lock') == 1 then return { 'locked' } end
local text, now = ARGV[1], tonumber(ARGV[1])
if (call('GET', P .. 'rv') or '0') ~= ARGV[2] then return { 'rules' } end
if call('HLEN', P .. 'lanes') ~= tonumber(ARGV[3]) then return { 'lanes' } end
local worker, limit = ARGV[4], tonumber(ARGV[7])
local row = call('HGET', P .. 'workers', worker) or ''
if row ~= ARGV[5] then return { 'worker', row } end
if #call('ZRANGEBYSCORE', P .. 'ex', '-inf', text, 'LIMIT', 0, 1) > 0 then return { 'python' } end
local most, at = {}, 9
for i = 1, tonumber(ARGV[8]) do most[i] = tonumber(ARGV[at]); at = at + 1 end
local times = {}
for i = 1, tonumber(ARGV[at]) do times[i] = tonumber(ARGV[at + i]) end
at = at + 1 + #times
local function hex(s) return (string.gsub(s, '.', function(c) return string.format('%02x', byte(c)) end)) end
local offers, next_at = {}, nil
for i = at, #ARGV, 5 do
  local name = hex(ARGV[i])
  local q, z = P .. 'q:' .. name, P .. 'z:' .. name
  local first = call('ZRANGE', q, 0, 0, 'WITHSCORES')[2]
  local timed = false
  if call('EXISTS', z) == 1 then
    timed = call('ZRANGEBYSCORE', z, '-inf', text, 'WITHSCORES', 'LIMIT', 0, 1)[2]
    local later = call('ZRANGEBYSCORE', z, '(' .. text, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
    if later and (not next_at or tonumber(later) < tonumber(next_at)) then next_at = later end
  end
  if (first or timed) and ARGV[i + 4] == '1' then
    local head = math.min(first and tonumber(first) or math.huge, timed and tonumber(timed) or math.huge)
    local priority = tonumber(ARGV[i + 1])
    local rank = -(priority + math.max(0, now - head) / 60)
    offers[#offers + 1] = {
      rank, head, i, q, z, timed, ARGV[i], tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3]), priority, 0,
    }
  end
end
table.sort(offers, function(a, b)
  if a[1] ~= b[1] then return a[1] < b[1] end
  if a[2] ~= b[2] then return a[2] < b[2] end
  return a[3] < b[3]
end)
-- Read: which jobs, from which line
local taken, suspects = {}, 0
local function rows_of(ids)
  local rows = {}
  for i = 1, #ids, AT_ONCE do
    local part = call('HMGET', P .. 'j', unpack(ids, i, math.min(#ids, i + AT_ONCE - 1)))
    for k = 1, #part do rows[i + k - 1] = part[k] end
  end
  return rows
end
local python = false
-- Take up to so many more jobs of a lane; how many it gave
local function take(o, want)
  want = math.min(want, limit - #taken, most[o[TASK]])
  if want <= 0 or python then return 0 end
  local upto, places, ids = o[DONE] + want, {}, {}
  local found = call('ZRANGEBYSCORE', o[4], '-inf', '+inf', 'WITHSCORES', 'LIMIT', 0, upto)
  for k = 1, #found, 2 do places[#places + 1] = { tonumber(found[k + 1]), found[k], o[4] } end
  if o[6] then
    found = call('ZRANGEBYSCORE', o[5], '-inf', text, 'WITHSCORES', 'LIMIT', 0, upto)
    for k = 1, #found, 2 do places[#places + 1] = { tonumber(found[k + 1]), found[k], o[5] } end
    table.sort(places, function(a, b)
      if a[1] ~= b[1] then return a[1] < b[1] end
      return a[2] < b[2]
    end)
  end
  local before = o[DONE]
  for k = before + 1, math.min(upto, #places) do ids[#ids + 1] = places[k][2] end
  for k, value in ipairs(rows_of(ids)) do
    local flags = byte(value, FLAGS)
    python = python or flags >= PYTHON
    if flags == SPARED then
      if suspects >= MOST_SUSPECTS then break end
      suspects = suspects + 1
    end
    taken[#taken + 1] = { ids[k], value, places[before + k][3], o[7] }
    most[o[TASK]], o[DONE] = most[o[TASK]] - 1, o[DONE] + 1
  end
  return o[DONE] - before
end
-- Rounds of queues that share what there is room for: see rules/queue_turns.py. Of one queue there is
-- nothing to share, and a claim of one job would take a quarter longer.
local at_offer = 1
if #times < 2 then
  for _, o in ipairs(offers) do take(o, limit) end
  at_offer = #offers + 1
end
while at_offer <= #offers and #taken < limit do
  local level, lanes, queues = offers[at_offer][PRIORITY], {}, {}
  while at_offer <= #offers and -offers[at_offer][1] >= level do
    local o = offers[at_offer]
    if not lanes[o[QUEUE]] then
      lanes[o[QUEUE]] = { first = 1 }
      queues[#queues + 1] = o[QUEUE]
      lanes[o[QUEUE]].place = #queues
    end
    table.insert(lanes[o[QUEUE]], o)
    at_offer = at_offer + 1
  end
  table.sort(queues, function(a, b)
    if times[a] ~= times[b] then return times[a] < times[b] end
    return lanes[a].place < lanes[b].place
  end)
  while #queues > 0 and #taken < limit do
    local share, live = math.max(1, math.floor((limit - #taken) / #queues)), {}
    for _, queue in ipairs(queues) do
      local line, left = lanes[queue], math.min(share, limit - #taken)
      while left > 0 and line[line.first] do
        local jobs = take(line[line.first], left)
        if jobs < left then line.first = line.first + 1 end
        left = left - jobs
      end
      if line[line.first] then live[#live + 1] = queue end
    end
    queues = live
  end
end
if python then return { 'python' } end
-- Write; the first write is one that full memory does not refuse
call('DEL', P .. 'none')
call('HSET', P .. 'workers', worker, ARGV[6])
if #taken == 0 then return { '', next_at or '' } end
local answer, lines, rows, held, counts = { '', next_at or '' }, {}, {}, {}, {}
local claimed_at = struct.pack('>d', now)
for _, t in ipairs(taken) do
  local id, value, line, lane = t[1], t[2], t[3], t[4]
  local attempt = struct.pack('>I4', struct.unpack('>I4', value, 10) + 1)
  local fresh = 'x' .. lane .. attempt .. claimed_at .. sub(value, FLAGS, FLAGS) .. struct.pack('>I2', #worker) .. worker
    .. sub(value, HEAD + 1 + length_of(value))
  rows[#rows + 1] = id; rows[#rows + 1] = fresh
  held[#held + 1] = id; held[#held + 1] = ''
  if not lines[line] then lines[line] = {} end
  table.insert(lines[line], id)
  counts[lane] = (counts[lane] or 0) + 1
  answer[#answer + 1] = id; answer[#answer + 1] = fresh
end
local function each(command, key, words)
  for i = 1, #words, 2 * AT_ONCE do call(command, key, unpack(words, i, math.min(#words, i + 2 * AT_ONCE - 1))) end
end
for line, ids in pairs(lines) do each('ZREM', line, ids) end
each('HSET', P .. 'j', rows)
each('HSET', P .. 'held:' .. worker, held)
call('SADD', P .. 'holders', worker)
for lane, n in pairs(counts) do call('HINCRBY', P .. 't', lane .. 'x', n) end
return answer
