-- Serves migrate: one process at a time. Then no step waits long for a table: whoever comes behind
-- it would wait as well.
set local statement_timeout = 0;
set local lock_timeout = '20s';
select pg_advisory_xact_lock(4855284200);
set local lock_timeout = '2s';
