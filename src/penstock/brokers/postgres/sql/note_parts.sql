-- Serves migrate: that there are parts to build, for whoever opens the store until it is done.
insert into penstock.meta (name, value)
select 'parts', 'to build'
 where exists (select 1
                 from pg_catalog.pg_index
                where indrelid = 'penstock.history'::regclass
                  and not indisvalid)
    on conflict (name) do nothing;
