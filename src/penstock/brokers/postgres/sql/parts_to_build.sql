-- Serves migrate: what builds those parts of the history's indexes that are missing, a partition each,
-- while others write: outside of a transaction, one statement after the other, row by row. What
-- somebody left unfinished is dropped first. Parts have the names that PostgreSQL gives them.
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
