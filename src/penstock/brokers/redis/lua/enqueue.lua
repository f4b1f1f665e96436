-- Enqueue one job from any language: EVAL script 1 {penstock}: task '{"to":"ada"}' '{"queue":"mail","delay":60}'
-- KEYS[1] is the prefix of the store. ARGV: task, arguments by name as a JSON object, options as a JSON
-- object: queue, priority, version, app, delay (seconds), id (a UUIDv7 of your own: sent again, it is
-- stored once), headers. Answers { id, 1 where it was stored now }.
local P, call, char, floor = KEYS[1], redis.call, string.char, math.floor
local function refuse(text) return redis.error_reply('REFUSED ' .. text) end
local task, args = ARGV[1], ARGV[2] or '{}'
local read, options = pcall(cjson.decode, ARGV[3] or '{}')
local is_json, named = pcall(cjson.decode, args)
if not is_json or type(named) ~= 'table' or string.sub(args, 1, 1) ~= '{' then return refuse('the arguments are no JSON object') end
if not read or type(options) ~= 'table' then return refuse('the options are no JSON object') end
local known = { queue = 'string', priority = 'number', version = 'number', app = 'string', delay = 'number', id = 'string', headers = 'table' }
for name, value in pairs(options) do
  if type(value) ~= known[name] then return refuse('option ' .. name .. ' is not known, or of another type') end
end
local queue, app = options.queue or 'default', options.app or ''
local priority, version = options.priority or 0, options.version or 1
for _, name in ipairs({ task or '', queue, app == '' and 'unnamed' or app }) do
  if #name > 200 or not string.find(name, '^[%w_%.:/%-]+$') then return refuse('a name has 1 to 200 letters, digits and _ . : / -') end
end
if string.find(task, '^%.*/') or string.find(task, '%.py[:%z]') then return refuse('the task is a path: write module:function') end
if priority ~= floor(priority) or priority < -100 or priority > 100 then return refuse('priority goes from -100 to 100') end
if version ~= floor(version) or version < 0 or version > 2147483647 then return refuse('version is no whole number') end
if call('EXISTS', P .. 'meta') == 0 then return refuse('there is no store behind ' .. P .. ': a worker or the first enqueue in Python makes it') end
if call('HEXISTS', P .. 'sealed', app) == 1 then return refuse('its app encrypts its jobs, which this script does not') end
if call('EXISTS', P .. 'lock') == 1 then return redis.error_reply('TRYAGAIN a change of the store is under way') end

-- SHA-256, by which a lane is known; Redis has SHA-1 alone
local band, bxor, rshift, ror, bnot = bit.band, bit.bxor, bit.rshift, bit.ror, bit.bnot
local function sha256(text)
  local k, h, n = {}, {}, 2
  while #k < 64 do
    local prime = true
    for d = 2, floor(n ^ 0.5) do if n % d == 0 then prime = false; break end end
    if prime then
      if #h < 8 then h[#h + 1] = bit.tobit(floor((n ^ 0.5 % 1) * 2 ^ 32)) end
      k[#k + 1] = bit.tobit(floor((n ^ (1 / 3) % 1) * 2 ^ 32))
    end
    n = n + 1
  end
  local bits = #text * 8
  text = text .. '\128' .. string.rep('\0', (55 - #text) % 64) .. struct.pack('>I8', bits)
  for at = 1, #text, 64 do
    local w = {}
    for i = 1, 16 do w[i] = bit.tobit(struct.unpack('>I4', text, at + 4 * (i - 1))) end
    for i = 17, 64 do
      local a, b = w[i - 15], w[i - 2]
      w[i] = bit.tobit(w[i - 16] + bxor(ror(a, 7), ror(a, 18), rshift(a, 3)) + w[i - 7] + bxor(ror(b, 17), ror(b, 19), rshift(b, 10)))
    end
    local a, b, c, d, e, f, g, last = unpack(h)
    for i = 1, 64 do
      local one = bit.tobit(last + bxor(ror(e, 6), ror(e, 11), ror(e, 25)) + bxor(band(e, f), band(bnot(e), g)) + k[i] + w[i])
      local two = bit.tobit(bxor(ror(a, 2), ror(a, 13), ror(a, 22)) + bxor(band(a, b), band(a, c), band(b, c)))
      a, b, c, d, e, f, g, last = bit.tobit(one + two), a, b, c, bit.tobit(d + one), e, f, g
    end
    local now = { a, b, c, d, e, f, g, last }
    for i = 1, 8 do h[i] = bit.tobit(h[i] + now[i]) end
  end
  local out = {}
  for i = 1, 8 do out[i] = struct.pack('>i4', h[i]) end
  return table.concat(out)
end

local lane = string.sub(sha256(string.format('["%s","%s","%s",%d,%d,[]]', app, queue, task, version, priority)), 1, 8)
local lane_hex = string.gsub(lane, '.', function(c) return string.format('%02x', string.byte(c)) end)

-- MessagePack
local function str(text) return '\219' .. struct.pack('>I4', #text) .. text end
local function bin(text) return '\198' .. struct.pack('>I4', #text) .. text end
local function int(number) return '\211' .. struct.pack('>i8', number) end
local function float(number) return '\203' .. struct.pack('>d', number) end

local clock = call('TIME')
local now = tonumber(clock[1]) + tonumber(clock[2]) / 1000000
local raw
if options.id then
  local hex = string.gsub(options.id, '-', '')
  if not string.find(hex, '^%x+$') or #hex ~= 32 or string.sub(hex, 13, 13) ~= '7' then return refuse('id is no UUIDv7') end
  raw = string.gsub(hex, '%x%x', function(pair) return char(tonumber(pair, 16)) end)
else
  -- Milliseconds, a fraction of one, and what no other call of this store has; the offset is 0
  local ms, rest = tonumber(clock[1]) * 1000 + floor(tonumber(clock[2]) / 1000), tonumber(clock[2]) % 1000
  local noise = redis.sha1hex(clock[1] .. clock[2] .. call('HINCRBY', P .. 'meta', 'enqueued', 1))
  local hex = string.format('%012x7%03x8%s000', ms, floor(rest * 4.096), string.sub(noise, 1, 12))
  raw = string.gsub(hex, '%x%x', function(pair) return char(tonumber(pair, 16)) end)
end
local id = string.gsub(string.gsub(raw, '.', function(c) return string.format('%02x', string.byte(c)) end), '^(%x%x%x%x%x%x%x%x)(%x%x%x%x)(%x%x%x%x)(%x%x%x%x)', '%1-%2-%3-%4-')
local hi, lo = struct.unpack('>I4', raw), struct.unpack('>I2', raw, 5)
local made_at = (hi * 65536 + lo) / 1000
local oldest = math.max(tonumber(call('HGET', P .. 'meta', 'pruned') or '0'), now - 86400)
if made_at < oldest then return refuse('id ' .. id .. ' was made longer ago than ids are remembered') end
if made_at > now + 60 then return refuse('id ' .. id .. ' was made ahead of the clock of the server') end
local sent = P .. 'sent:' .. string.sub(raw, 1, 4)
if call('HEXISTS', sent, raw) == 1 then return { id, 0 } end
local body = '{"args":' .. args .. (options.headers and next(options.headers) and ',"headers":' .. cjson.encode(options.headers) or '') .. '}'
if #body > 262144 then return refuse('the arguments are larger than 256 KiB') end
local at = math.min(made_at, now)
local run_at = options.delay and now + options.delay
local rest = '\152' .. str(task) .. bin(body) .. str(queue) .. int(version) .. int(priority)
  .. (run_at and float(run_at) or '\192') .. str(app) .. float(at)
call('HSET', sent, raw, float(at))
call('SADD', P .. 'sents', string.sub(raw, 1, 4))
call('HSET', P .. 'j', raw, 'r' .. lane .. struct.pack('>I4', 0) .. struct.pack('>d', -1) .. '\0' .. struct.pack('>I2', 0) .. rest)
call('ZADD', P .. (run_at and 'z:' or 'q:') .. lane_hex, string.format('%.17g', run_at or at), raw)
call('ZADD', P .. 'new', 0, raw)
call('HSET', P .. 'lanes', lane, '\134' .. str('queue') .. str(queue) .. str('task') .. str(task) .. str('version') .. int(version)
  .. str('priority') .. int(priority) .. str('runs_on') .. '\144' .. str('app') .. str(app))
call('PUBLISH', P .. 'wake', '')
return { id, 1 }
