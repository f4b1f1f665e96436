-- Keep the latest note of a kind and name.
insert into penstock_note (job, kind, name, at, value)
values (:job, :kind, :name, :at, :value)
    on conflict (job, kind, name) do update set at = excluded.at, value = excluded.value;
