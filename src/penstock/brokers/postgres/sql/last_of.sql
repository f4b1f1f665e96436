-- Serves history, for one job: its last rows, newest first.
select *
  from penstock.history
 where job = %(job)s
 order by position desc
 limit %(limit)s;
