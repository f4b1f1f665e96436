-- Serves migrate.
select pg_advisory_unlock(4855284205);
