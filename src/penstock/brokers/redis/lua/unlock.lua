-- ARGV: token. Gives the lock back where it is still held with this token.
if redis.call('GET', KEYS[1] .. 'lock') == ARGV[1] then redis.call('DEL', KEYS[1] .. 'lock') end
return 0
