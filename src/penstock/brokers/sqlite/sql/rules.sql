-- The rules in force.
select kind, queue, task, author, reason, created_at, until
  from penstock_rule
 where until is null or until > ?
 order by created_at, kind, queue, task;
