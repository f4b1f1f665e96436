-- Serves history, for one job.
select *
  from penstock_history
 where job = :job
   and position > :after
 order by position
 limit :limit;
