-- Serves settle and note: the row, if this attempt still holds it.
select *
  from penstock_job
 where id = :id
   and state = 'running'
   and attempt = :attempt;
