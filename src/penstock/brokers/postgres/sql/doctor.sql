-- What `penstock doctor` reads.

-- name: doctor_settings
-- Settings as they are in effect for this login in this database; the isolation level from what was set
-- for database and login, since our own sessions override it.
select name, setting
  from pg_settings
 where name in ('fsync', 'full_page_writes', 'synchronous_commit', 'autovacuum', 'track_counts',
                'idle_in_transaction_session_timeout', 'default_transaction_read_only')
 union all
select split_part(entry, '=', 1), split_part(entry, '=', 2)
  from pg_db_role_setting s,
       unnest(s.setconfig) as entry
 where s.setdatabase in (0, (select oid from pg_database where datname = current_database()))
   and s.setrole in (0, (select oid from pg_roles where rolname = current_user))
   and split_part(entry, '=', 1) = 'default_transaction_isolation';

-- name: doctor_standby
-- Whether this server is a standby.
select pg_is_in_recovery() as standby;

-- name: doctor_connections
-- Connections that clients may open, those in use, and the live workers.
select current_setting('max_connections')::integer
       - current_setting('superuser_reserved_connections')::integer as most,
       (select count(*) from pg_stat_activity where backend_type = 'client backend') as used,
       (select count(*)
          from penstock.worker w
         where w.gone = 0
           and w.alive_until > extract(epoch from clock_timestamp())) as workers;

-- name: doctor_workers
-- Serves doctor and migrate: live workers and their releases.
select w.id, w.declared::jsonb ->> 'host' as host, w.declared::jsonb ->> 'pid' as pid,
       w.declared::jsonb ->> 'penstock' as penstock
  from penstock.worker w
 where w.gone = 0
   and w.alive_until > extract(epoch from clock_timestamp())
 order by w.id;

-- name: doctor_missing
-- Which of the expected tables, indexes, sequences and functions are not in the catalog.
select kind, name
  from jsonb_to_recordset(%(expected)s::jsonb) as e (kind text, name text)
 where not exists (
    select 1
      from pg_catalog.pg_class c
     where c.relnamespace = to_regnamespace('penstock')
       and c.relname = e.name
       and e.kind <> 'function'
 )
   and not exists (
    select 1
      from pg_catalog.pg_proc p
     where p.pronamespace = to_regnamespace('penstock')
       and p.proname = e.name
       and e.kind = 'function'
 )
 order by kind, name;

-- name: doctor_days
-- The coming days that have no partition.
select to_char(d, 'YYYY-MM-DD') as day
  from generate_series((now() at time zone 'UTC')::date,
                       (now() at time zone 'UTC')::date + %(days)s::integer, interval '1 day') as d
 where to_regclass('penstock.sent_' || to_char(d, 'YYYYMMDD')) is null
    or to_regclass('penstock.history_' || to_char(d, 'YYYYMMDD')) is null
 order by d;

-- name: doctor_other
-- Rows in the default partitions; counted only up to `most`.
select 'history_other' as name,
       (select count(*) from (select 1 from penstock.history_other limit %(most)s + 1) as few) as rows
 union all
select 'sent_other',
       (select count(*) from (select 1 from penstock.sent_other limit %(most)s + 1) as few);

-- name: doctor_dead
-- Dead and live rows of each table, and how long ago it was vacuumed.
select relname as name, n_dead_tup as dead, n_live_tup as live,
       extract(epoch from clock_timestamp() - greatest(last_autovacuum, last_vacuum))::double precision as seconds
  from pg_stat_user_tables
 where schemaname = 'penstock'
 order by n_dead_tup desc;

-- name: doctor_tally
-- How many rows a fold would remove; at most 200,000 are read.
select count(*) - count(distinct (lane, state, minute)) as unfolded
  from (select lane, state, minute from penstock.tally limit 200000) as few;

-- name: doctor_positions
-- The newest transaction in the positions of the history, and the next one of this server.
select coalesce(max(position), 0) >> 20 as newest,
       pg_snapshot_xmax(pg_current_snapshot())::text::bigint as next
  from penstock.history;

-- name: doctor_horizon
-- The oldest open transactions that hold the horizon. One that has written counts for every database, one
-- that only reads for its own.
select a.pid, a.usename, a.application_name, a.datname, a.state,
       a.backend_xid is not null as writes,
       extract(epoch from clock_timestamp() - a.xact_start)::double precision as seconds
  from pg_stat_activity a
 where a.pid <> pg_backend_pid()
   and a.backend_type = 'client backend'
   and a.xact_start is not null
   and (a.backend_xid is not null or a.backend_xmin is not null and a.datname = current_database())
 order by a.xact_start
 limit 5;

-- name: doctor_hidden
-- How many sessions are hidden from this login.
select count(*) as sessions
  from pg_stat_activity
 where backend_type is null and query = '<insufficient privilege>'
    or query = '<insufficient privilege>' and usename is distinct from current_user;

-- name: doctor_prepared
-- Prepared transactions, oldest first.
select gid, owner, database,
       extract(epoch from clock_timestamp() - prepared)::double precision as seconds
  from pg_prepared_xacts
 order by prepared
 limit 5;

-- name: doctor_slots
-- How far replication slots hold back the horizon and the WAL.
select slot_name, active, greatest(age(xmin), 0) as pinned,
       pg_wal_lsn_diff(case when pg_is_in_recovery() then pg_last_wal_replay_lsn()
                            else pg_current_wal_insert_lsn() end, restart_lsn)::bigint as kept
  from pg_replication_slots
 order by slot_name;

-- name: doctor_listen
-- Receive what doctor_notify sends.
listen penstock_doctor;

-- name: doctor_notify
-- A notification to this connection itself.
select pg_notify('penstock_doctor', %s);

-- name: doctor_wal
-- How far the WAL and the history have come.
select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint as wal,
       (select wal_fpi from pg_stat_wal) as full_pages,
       (select coalesce(max(position), 0) from penstock.history) as position;

-- name: doctor_ended
-- How many attempts ended after a position.
select count(*) as jobs
  from penstock.history
 where position > %(position)s
   and kind = 'attempt';
