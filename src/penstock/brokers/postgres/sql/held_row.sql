-- Serves settle and note: the row, if this attempt still holds it.
select *
  from penstock.job
 where id = %(id)s
   and state = 'running'
   and attempt = %(attempt)s
   for update;
