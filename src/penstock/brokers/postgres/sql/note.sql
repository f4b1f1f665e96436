-- Keep the latest note of a kind and name.
insert into penstock.note (job, kind, name, at, value)
values (%(job)s, %(kind)s, %(name)s, %(at)s, %(value)s)
    on conflict (job, kind, name) do update set at = excluded.at, value = excluded.value;
