-- The rules in force.
select kind, queue, task, version, tag, tag_value, key, per_key, author, reason, created_at, until,
       running, rate_jobs, rate_seconds, policy
  from penstock_rule
 where until is null or until > ?
 order by created_at, kind, queue, task, version, tag, tag_value, key, per_key;
