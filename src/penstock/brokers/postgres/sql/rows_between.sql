-- Serves cancel, retry and delete of a whole flow: the rows of a range of jobs, about to be changed.
select *
  from penstock.job
 where id between %(first)s and %(last)s
   and state in (select json_array_elements_text(%(states)s::json))
 order by id
   for update;
