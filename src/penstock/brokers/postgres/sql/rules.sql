-- The rules in force.
select kind, queue, task, author, reason, created_at, until
  from penstock.rule
 where until is null or until > %s
 order by created_at, kind, queue, task;
