-- Serves enqueue and retry.
insert into penstock.unique_key (key, job, until, expires_at)
values (%(key)s, %(job)s, %(until)s, %(expires_at)s)
    on conflict (key) do update
   set job = excluded.job, until = excluded.until, expires_at = excluded.expires_at;
