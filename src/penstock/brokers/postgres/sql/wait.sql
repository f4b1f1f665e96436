-- Tell others that there is something to claim, and listen for it.

-- name: listen
-- Serves wait and rules_version: hear what `tell` sends.
listen penstock;

-- name: tell
-- Serves wait and rules_version: what the others are to hear. A hint need not be on the disk.
select set_config('synchronous_commit', 'off', true), pg_notify('penstock', %s);

-- name: still_there
-- Whether a connection that says nothing is still there.
select 1;

-- name: clock
-- Serves every connection now and then: what time it is by the server.
select extract(epoch from clock_timestamp())::double precision;
