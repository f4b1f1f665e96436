-- Serves history: how far the server's log is written.
select pg_current_wal_insert_lsn()::text as written;
