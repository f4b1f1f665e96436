-- Compare and apply. KEYS[1] is the prefix.
-- ARGV: token of the lock ('' = none), #checks, { sha1 of the reply, #words, command, key, word.. }*,
--       #writes, { #words, command, key, word.. }*,
--       #events, { event, job, kind }*, 1 where something was made ready, 1 where jobs are added: full
--       memory refuses these,
--       the time in microseconds: a position is at least that.
-- Keys are sent without the prefix. Answers { -1 } where another holds the lock, { n } where check n
-- failed, else { 0, last position }.
local P, call, sub = KEYS[1], redis.call, string.sub
local held = call('GET', P .. 'lock')
if held and held ~= ARGV[1] then return { -1 } end
if ARGV[1] ~= '' and not held then return { -1 } end
local unordered = { HGETALL = 2, HKEYS = 1, SMEMBERS = 1 }
local function canonical(reply, size)
  if type(reply) ~= 'table' then
    if reply == false then return 'N' end
    if type(reply) == 'number' then return ':' .. string.format('%.0f', reply) end
    return '$' .. #reply .. ':' .. reply
  end
  local parts = {}
  if size then
    for i = 1, #reply, size do
      local part = {}
      for k = i, i + size - 1 do part[#part + 1] = canonical(reply[k]) end
      parts[#parts + 1] = table.concat(part)
    end
    table.sort(parts)
  else
    for i = 1, #reply do parts[i] = canonical(reply[i]) end
  end
  return '*' .. #parts .. ':' .. table.concat(parts)
end
local at = 2
local function words()
  local n = tonumber(ARGV[at])
  local found = {}
  for i = 1, n do found[i] = ARGV[at + i] end
  found[2] = P .. found[2]
  at = at + n + 1
  return found
end
local checks = tonumber(ARGV[at])
at = at + 1
for c = 1, checks do
  local expected = ARGV[at]
  at = at + 1
  local command = words()
  if redis.sha1hex(canonical(call(unpack(command)), unordered[command[1]])) ~= expected then return { c } end
end
if ARGV[#ARGV - 1] ~= '1' then call('DEL', P .. 'none') end  -- memory refuses no write behind it
local writes = tonumber(ARGV[at])
at = at + 1
for _ = 1, writes do call(unpack(words())) end
local events = tonumber(ARGV[at])
at = at + 1
local position = tonumber(call('GET', P .. 'pos') or '0')
if events > 0 then
  local us = tonumber(ARGV[#ARGV])
  for _ = 1, events do
    position = math.max(position + 1, us)
    local text = string.format('%.0f', position)
    call('XADD', P .. 'h', text .. '-0', 'e', ARGV[at])
    if ARGV[at + 1] ~= '' then call('ZADD', P .. 'hj', 0, ARGV[at + 1] .. ' ' .. string.format('%020.0f', position)) end
    if ARGV[at + 2] ~= 'attempt' then call('ZADD', P .. 'hk:' .. ARGV[at + 2], position, text) end
    at = at + 3
  end
  call('SET', P .. 'pos', string.format('%.0f', position))
end
if ARGV[at] == '1' then call('PUBLISH', P .. 'wake', '') end
return { 0, string.format('%.0f', position) }
