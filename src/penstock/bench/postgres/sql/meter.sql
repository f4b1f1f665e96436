-- Serves the benchmark: bytes of WAL, pages in full among its records, transactions of this database.
select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint,
       (select wal_fpi from pg_stat_wal),
       (select xact_commit + xact_rollback from pg_stat_database where datname = current_database());
