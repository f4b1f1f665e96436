-- Serves history: whether that is on the disk.
select pg_current_wal_flush_lsn() >= %(written)s::pg_lsn as flushed;
