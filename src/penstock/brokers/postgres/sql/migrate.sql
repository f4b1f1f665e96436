-- Create the schema, or migrate it.

-- name: has_meta
-- Serves every open: whether there is a table penstock.meta. Reads the catalog's rows: to_regclass answers
-- from the session's cache, and may miss a table that another session has just created.
select exists (
    select 1
      from pg_catalog.pg_class c
      join pg_catalog.pg_namespace n on n.oid = c.relnamespace
     where n.nspname = 'penstock'
       and c.relname = 'meta'
);

-- name: meta
-- Serves every open: all facts about the store.
select name, value from penstock.meta;

-- name: place
-- Serves the doctor: which server and which of its databases this is. A standby that is promoted keeps
-- both; what is restored from a dump, or made by `create database ... template`, has not.
select format('%s/%s', s.system_identifier, d.oid)
  from pg_catalog.pg_control_system() s
  join pg_catalog.pg_database d on d.datname = current_database();

-- name: put_meta
-- Store a fact about the store.
insert into penstock.meta (name, value)
values ({name}, {value})
    on conflict (name) do update
   set value = excluded.value;

-- name: put_store
-- The store's id.
insert into penstock.meta (name, value)
values ('store', gen_random_uuid()::text);

-- name: migrate_lock
-- One process migrates at a time. The steps have a short lock_timeout: while one waits for a table, all
-- other users of that table wait behind it.
set local statement_timeout = 0;
set local lock_timeout = '20s';
select pg_advisory_xact_lock(4855284200);
set local lock_timeout = '2s';

-- name: migrate_from
-- Serves migrate sql: refuse if the store was migrated since the script was printed.
do $$
begin
    if (select coalesce(min(value) filter (where name = 'schema'), '') || ' '
            || coalesce(min(value) filter (where name = 'post'), '')
          from penstock.meta) <> {schema} || ' ' || {post} then
        raise exception 'the store was migrated since this script was printed: run penstock migrate sql again';
    end if;
end
$$;

-- name: make_days
-- The partitions of a new store, for today and the coming week.
select penstock.make_day(day)
  from (select floor(extract(epoch from clock_timestamp()) / 86400)::integer as today) as clock,
       generate_series(today, today + 7) as day;

-- name: note_parts
-- Note that index parts are to be built, for the next process that opens the store.
insert into penstock.meta (name, value)
select 'parts', 'to build'
 where exists (select 1
                 from pg_catalog.pg_index
                where indrelid = 'penstock.history'::regclass
                  and not indisvalid)
    on conflict (name) do nothing;

-- name: parts_to_build
-- The statements that build the missing parts of the history's indexes, one part per partition. They are
-- run one after the other, row by row, outside of a transaction, because they are `concurrently`. An
-- invalid part of a process that was killed is dropped first. Parts get the names that PostgreSQL would
-- give them.
select case when unfinished
            then format('drop index concurrently penstock.%I', name) end as drop_it,
       case when unfinished is distinct from false
            then format('create index concurrently %I on penstock.%I %s', name, part, columns) end as build_it,
       format('alter index penstock.%I attach partition penstock.%I', whole, name) as attach_it
  from (
    select named.*,
           (select not b.indisvalid
              from pg_catalog.pg_class built
              join pg_catalog.pg_index b on b.indexrelid = built.oid
             where built.relnamespace = 'penstock'::regnamespace
               and built.relname = named.name) as unfinished
      from (
        select w.relname as whole,
               c.relname as part,
               substring(pg_get_indexdef(i.indexrelid) from 'USING .*') as columns,
               (select format('%s_%s_idx', c.relname, string_agg(a.attname, '_' order by k.place))
                  from unnest(i.indkey::int2[]) with ordinality as k (attribute, place)
                  join pg_catalog.pg_attribute a
                    on a.attrelid = i.indrelid and a.attnum = k.attribute) as name
          from pg_catalog.pg_index i
          join pg_catalog.pg_class w on w.oid = i.indexrelid
          join pg_catalog.pg_inherits p on p.inhparent = i.indrelid
          join pg_catalog.pg_class c on c.oid = p.inhrelid
         where i.indrelid = 'penstock.history'::regclass
           and not i.indisvalid
           and not exists (
               select 1
                 from pg_catalog.pg_inherits a
                 join pg_catalog.pg_index b on b.indexrelid = a.inhrelid
                where a.inhparent = i.indexrelid
                  and b.indrelid = c.oid)
      ) as named
  ) as missing
 order by part, whole;

-- name: parts_built
-- All parts are built.
delete from penstock.meta where name = 'parts';

-- name: lock_parts
-- One process builds; the others go on without waiting. No statement_timeout, since building may take
-- hours, but a lock_timeout.
select case when pg_try_advisory_lock(4855284205)
            then set_config('statement_timeout', '0', false)
                 || set_config('lock_timeout', %(locks)s, false) is not null
            else false end;

-- name: unlock_parts
-- Undo what lock_parts set for the session.
reset statement_timeout;
reset lock_timeout;
select pg_advisory_unlock(4855284205);
