-- Put a rule in force; set again while it is, it keeps the time it began, and an order its policy:
-- the caller compares.
insert into penstock_rule (
    kind, queue, task, version, tag, tag_value, key, per_key, author, reason, created_at, until,
    running, rate_jobs, rate_seconds, policy
) values (
    :kind, :queue, :task, :version, :tag, :tag_value, :key, :per_key, :author, :reason, :created_at,
    :until, :running, :rate_jobs, :rate_seconds, :policy
)
    on conflict (kind, queue, task, version, tag, tag_value, key, per_key) do update
   set author = excluded.author,
       reason = excluded.reason,
       created_at = case when until <= :now then excluded.created_at else created_at end,
       until = excluded.until,
       running = excluded.running,
       rate_jobs = excluded.rate_jobs,
       rate_seconds = excluded.rate_seconds
returning created_at, policy;
