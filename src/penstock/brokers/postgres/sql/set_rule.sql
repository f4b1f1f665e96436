-- Put a rule in force; set again while it is, it keeps the time it began. The lock is that of the
-- claims: they are over, or begin after this is committed.
insert into penstock.rule as r (kind, queue, task, author, reason, created_at, until)
select %(kind)s, %(queue)s, %(task)s, %(author)s, %(reason)s, %(created_at)s, %(until)s
  from (select pg_advisory_xact_lock(4855284201)) as claims
    on conflict (kind, queue, task) do update
   set author = excluded.author,
       reason = excluded.reason,
       created_at = case when r.until <= %(now)s then excluded.created_at else r.created_at end,
       until = excluded.until
returning created_at;
