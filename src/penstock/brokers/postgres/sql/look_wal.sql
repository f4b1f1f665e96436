-- Serves doctor: where the WAL and the history stand.
select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint as wal,
       (select wal_fpi from pg_stat_wal) as full_pages,
       (select coalesce(max(position), 0) from penstock.history) as position;
