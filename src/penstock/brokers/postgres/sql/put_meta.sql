-- Serves migrate.
insert into penstock.meta (name, value)
values ({name}, {value})
    on conflict (name) do update
   set value = excluded.value;
