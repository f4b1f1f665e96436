-- Serves migrate: what lock_parts.sql has set for the session is taken back.
reset statement_timeout;
reset lock_timeout;
select pg_advisory_unlock(4855284205);
