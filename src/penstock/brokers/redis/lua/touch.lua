-- A write that says nothing: who waits for replicas behind it knows that they have all before it.
-- KEYS[1] is the prefix.
return redis.call('HINCRBY', KEYS[1] .. 'meta', 'touched', 1)
