-- Serves retry: a job that waits for a later time is due now, and keeps its counters.
update penstock_job
   set run_at = :now,
       minute = 0
 where id = :id;
