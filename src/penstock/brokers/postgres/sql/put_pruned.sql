-- Serves prune: from now on ids from before this time are refused.
insert into penstock.meta as m (name, value) values ('pruned_before', %(before)s::double precision::text)
    on conflict (name) do update
   set value = greatest(m.value::double precision, excluded.value::double precision)::text;
