-- Serves doctor: what the schema should have and does not, by the rows of the catalog.
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
