-- Serves migrate and prune.
insert into penstock_meta (name, value) values (:name, :value)
    on conflict (name) do update set value = excluded.value;
