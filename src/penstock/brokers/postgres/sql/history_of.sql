-- Serves history, for one job.
select *
  from penstock.history
 where job = %(job)s
   and position > %(after)s
 order by position
 limit %(limit)s;
