-- Serves enqueue: what was sent last at or before this id, in its run. Ranges that were sent never
-- overlap, so no other one can hold it.
select id, jobs
  from penstock_sent
 where id between ? and ?
 order by id desc
 limit 1;
