-- Serves count: of the minute that is now, those not due yet.
select count(*) as jobs
  from penstock_job
 where lane = :lane
   and state = 'ready'
   and minute = :minute
   and run_at > :now;
