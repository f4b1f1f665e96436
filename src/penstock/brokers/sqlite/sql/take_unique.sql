-- Serves enqueue and retry.
insert into penstock_unique (key, job, until, expires_at)
values (:key, :job, :until, :expires_at)
    on conflict (key) do update
   set job = excluded.job, until = excluded.until, expires_at = excluded.expires_at;
