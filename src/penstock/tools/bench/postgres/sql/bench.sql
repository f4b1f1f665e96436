-- What the benchmark itself asks a server.

-- name: raw_table
-- The plainest table that could hold jobs of this size.
create table raw (
    id bytea primary key,
    lane bigint not null,
    body bytea not null
);

-- name: raw_insert
-- What one job costs the server itself.
insert into raw (id, lane, body)
values (%b, %b, %b);

-- name: raw_copy
-- Many rows at once.
copy raw (id, lane, body) from stdin (format binary)

-- name: facts
-- What the figures depend on.
select name, current_setting(name)
  from unnest(array['server_version', 'fsync', 'synchronous_commit', 'full_page_writes',
                    'shared_buffers', 'max_wal_size', 'wal_level']) as name;

-- name: meter
-- Bytes of WAL, pages in full among its records, transactions of this database.
select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint,
       (select wal_fpi from pg_stat_wal),
       (select xact_commit + xact_rollback from pg_stat_database where datname = current_database());

-- name: has_statements
-- Whether statements are counted here.
select exists (select 1 from pg_extension where extname = 'pg_stat_statements');

-- name: calls
-- Statements that were run in this database.
select coalesce(sum(s.calls), 0)::bigint
  from pg_stat_statements s
  join pg_database d on d.oid = s.dbid
 where d.datname = current_database();

-- name: span
-- First start, last end and number of the attempts that ended.
select min(started_at), max(at), count(*)
  from penstock.history
 where kind = 'attempt';

-- name: ended
-- Attempts that ended within a time.
select count(*)
  from penstock.history
 where kind = 'attempt'
   and at >= %s
   and at < %s;

-- name: snapshot
-- The first statement of a transaction takes its snapshot.
select count(*) from penstock.meta;
