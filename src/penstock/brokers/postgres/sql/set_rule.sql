-- Put a rule in force; set again while it is, it keeps the time it began, and an order its
-- policy: the caller compares. The lock is that of the
-- claims: they are over, or begin after this is committed.
insert into penstock.rule as r (
    kind, queue, task, version, tag, tag_value, key, per_key, author, reason, created_at, until,
    running, rate_jobs, rate_seconds, policy
)
select %(kind)s, %(queue)s, %(task)s, %(version)s, %(tag)s, %(tag_value)s, %(key)s, %(per_key)s,
       %(author)s, %(reason)s, %(created_at)s, %(until)s, %(running)s::integer, %(rate_jobs)s::integer,
       %(rate_seconds)s::double precision, %(policy)s
  from (select pg_advisory_xact_lock(4855284201)) as claims
    on conflict (kind, queue, task, version, tag, tag_value, key, per_key) do update
   set author = excluded.author,
       reason = excluded.reason,
       created_at = case when r.until <= %(now)s then excluded.created_at else r.created_at end,
       until = excluded.until,
       running = excluded.running,
       rate_jobs = excluded.rate_jobs,
       rate_seconds = excluded.rate_seconds
returning created_at, policy;
