-- Serves settle and note: the row, if this attempt still holds it.
select *
  from penstock.job
 where id = %(id)s
   and state = 'running'
   and attempt = %(attempt)s
   and claimed_at = %(claimed_at)s  -- tells apart claims that got the same number after a crash
   for update;
