-- Pauses, blocks, limits and orders.

-- name: rules
-- The rules in force.
select kind, queue, task, version, tag, tag_value, key, per_key, author, reason, created_at, until,
       running, rate_jobs, rate_seconds, policy
  from penstock_rule
 where until is null or until > ?
 order by created_at, kind, queue, task, version, tag, tag_value, key, per_key;

-- name: set_rule
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

-- name: clear_rule
-- Take a rule back.
delete from penstock_rule
 where kind = :kind
   and queue = :queue
   and task = :task
   and version = :version
   and tag = :tag
   and tag_value = :tag_value
   and key = :key
   and per_key = :per_key
   and (until is null or until > :now);
