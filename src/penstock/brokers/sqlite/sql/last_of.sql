-- Serves history, for one job: its last rows, newest first.
select *
  from penstock_history
 where job = :job
 order by position desc
 limit :limit;
