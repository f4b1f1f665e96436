-- The statements of the benchmark.

-- name: raw_table
-- The simplest table that could hold jobs of this size.
create table raw (
    id bytea primary key,
    lane bigint not null,
    body bytea not null
);

-- name: raw_insert
-- One row, for the raw limit.
insert into raw (id, lane, body)
values (%b, %b, %b);

-- name: raw_copy
-- Many rows, for the raw limit.
copy raw (id, lane, body) from stdin (format binary)

-- name: raw_job_tables
-- Copies of the tables that a job with a key is stored in, with their indexes.
create table raw_job (like penstock.job including all);
create table raw_sent (like penstock.sent including all);

-- name: raw_copy_jobs
-- Many jobs with a key, for the raw limit.
copy raw_job (id, lane, state, run_at, enqueued_at, key, body) from stdin (format binary)

-- name: raw_copy_sent
-- Their ids.
copy raw_sent (id, jobs, lane) from stdin (format binary)

-- name: facts
-- The settings that the figures depend on.
select name, current_setting(name)
  from unnest(array['server_version', 'fsync', 'synchronous_commit', 'full_page_writes',
                    'shared_buffers', 'max_wal_size', 'wal_level']) as name;

-- name: meter
-- Bytes of WAL, full pages in it, transactions of this database.
select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint,
       (select wal_fpi from pg_stat_wal),
       (select xact_commit + xact_rollback from pg_stat_database where datname = current_database());

-- name: has_statements
-- Whether the server counts statements.
select exists (select 1 from pg_extension where extname = 'pg_stat_statements');

-- name: calls
-- How many statements were run in this database.
select coalesce(sum(s.calls), 0)::bigint
  from pg_stat_statements s
  join pg_database d on d.oid = s.dbid
 where d.datname = current_database();

-- name: span
-- First start, last end and number of all attempts.
select min(started_at), max(at), count(*)
  from penstock.history
 where kind = 'attempt';

-- name: ended
-- How many attempts ended within a period.
select count(*)
  from penstock.history
 where kind = 'attempt'
   and at >= %s
   and at < %s;

-- name: snapshot
-- The first statement of a transaction takes its snapshot.
select count(*) from penstock.meta;
