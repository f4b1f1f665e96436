-- Serves cancel, retry and delete of a whole flow: the rows of a range of jobs, about to be changed.
select *
  from penstock_job
 where id between :first and :last
   and state in (select value from json_each(:states))
 order by id;
