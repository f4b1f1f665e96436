-- Serves migrate: one process at a time builds; the others go on without.
select pg_try_advisory_lock(4855284205);
