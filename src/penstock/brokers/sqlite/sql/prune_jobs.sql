-- Serves prune: jobs that ended and were kept long enough.
select *
  from penstock_job
 where state in ('failed', 'cancelled')
   and case when keep_until is null then ended_at < :before else keep_until <= :now end
 limit :most;
