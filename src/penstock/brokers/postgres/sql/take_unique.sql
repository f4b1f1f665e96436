-- Serves retry: take a key that is free, or whose time is over. No row: another has it.
insert into penstock.unique_key as u (key, job, until, expires_at)
values (%(key)s, %(job)s, %(until)s, %(expires_at)s)
    on conflict (key) do update
   set job = excluded.job, until = excluded.until, expires_at = excluded.expires_at
 where u.expires_at <= %(now)s;
