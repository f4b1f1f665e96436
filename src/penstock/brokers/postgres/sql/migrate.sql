-- Make the schema, or bring it forward.

-- name: has_meta
-- Serves every open: whether Penstock has been here before. Asked of the catalog's rows: to_regclass
-- answers from what this session remembers, also while another has just made it.
select exists (
    select 1
      from pg_catalog.pg_class c
      join pg_catalog.pg_namespace n on n.oid = c.relnamespace
     where n.nspname = 'penstock'
       and c.relname = 'meta'
);

-- name: meta
-- Serves every open: what the store says of itself.
select name, value from penstock.meta;

-- name: put_meta
-- A fact about the store.
insert into penstock.meta (name, value)
values ({name}, {value})
    on conflict (name) do update
   set value = excluded.value;

-- name: put_store
-- What tells this store from any other.
insert into penstock.meta (name, value)
values ('store', gen_random_uuid()::text);

-- name: migrate_lock
-- One process at a time. Then no step waits long for a table: whoever comes behind it would wait as
-- well.
set local statement_timeout = 0;
set local lock_timeout = '20s';
select pg_advisory_xact_lock(4855284200);
set local lock_timeout = '2s';

-- name: migrate_from
-- Serves migrate sql: what follows was written for a store that stands just here.
do $$
begin
    if (select coalesce(min(value) filter (where name = 'schema'), '') || ' '
            || coalesce(min(value) filter (where name = 'post'), '')
          from penstock.meta) <> {schema} || ' ' || {post} then
        raise exception 'the store has moved on since this was printed: run penstock migrate sql again';
    end if;
end
$$;

-- name: make_days
-- A new store has its partitions from the first row on.
select penstock.make_day(day)
  from (select floor(extract(epoch from clock_timestamp()) / 86400)::integer as today) as clock,
       generate_series(today, today + 7) as day;

-- name: note_parts
-- That there are parts to build, for whoever opens the store until it is done.
insert into penstock.meta (name, value)
select 'parts', 'to build'
 where exists (select 1
                 from pg_catalog.pg_index
                where indrelid = 'penstock.history'::regclass
                  and not indisvalid)
    on conflict (name) do nothing;

-- name: parts_to_build
-- What builds those parts of the history's indexes that are missing, a partition each, while others
-- write: outside of a transaction, one statement after the other, row by row. What somebody left
-- unfinished is dropped first. Parts have the names that PostgreSQL gives them.
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
-- Nothing is left to build.
delete from penstock.meta where name = 'parts';

-- name: lock_parts
-- One process at a time builds, and the others go on without. It takes as long as it takes, but
-- waits for others only for so long.
select case when pg_try_advisory_lock(4855284205)
            then set_config('statement_timeout', '0', false)
                 || set_config('lock_timeout', %(locks)s, false) is not null
            else false end;

-- name: unlock_parts
-- What lock_parts has set for the session is taken back.
reset statement_timeout;
reset lock_timeout;
select pg_advisory_unlock(4855284205);
