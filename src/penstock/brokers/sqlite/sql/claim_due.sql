-- Serves claim: the rows of a lane that are due, oldest first.
select run_at, id
  from penstock_job
 where lane = :lane
   and state = 'ready'
   and run_at <= :now
 order by run_at, id
 limit :limit;
