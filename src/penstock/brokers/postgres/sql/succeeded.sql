-- Serves get: a job that succeeded lives in its last history row, while its body is kept.
select *
  from penstock.history
 where job = %s
   and kind = 'attempt'
   and state = 'succeeded'
   and body is not null
 order by position desc
 limit 1;
