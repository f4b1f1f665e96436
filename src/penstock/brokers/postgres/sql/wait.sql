-- Notify other processes of new work and of changed rules, and listen for that.

-- name: listen
-- Serves wait and rules_version: receive what `notify` sends.
listen penstock;

-- name: notify
-- Serves wait and rules_version. Without waiting for the disk: a notification is only a hint.
select set_config('synchronous_commit', 'off', true), pg_notify('penstock', %s);

-- name: ping
-- Whether a connection that has been silent for a while is still open.
select 1;

-- name: clock
-- The server's time.
select extract(epoch from clock_timestamp())::double precision;
