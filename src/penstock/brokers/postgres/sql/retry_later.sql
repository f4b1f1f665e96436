-- Serves retry: a job that waits for a later time is due now, and keeps its counters.
update penstock.job
   set run_at = %(now)s,
       minute = 0
 where id = %(id)s;
