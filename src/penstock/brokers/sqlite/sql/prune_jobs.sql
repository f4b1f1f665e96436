-- Serves prune: jobs that ended and were kept long enough.
select *
  from penstock_job
 where state in ('failed', 'cancelled')
   and ended_at < :before;
