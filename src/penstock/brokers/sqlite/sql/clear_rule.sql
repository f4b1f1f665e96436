-- Take a rule back.
delete from penstock_rule
 where kind = :kind
   and queue = :queue
   and task = :task
   and (until is null or until > :now);
