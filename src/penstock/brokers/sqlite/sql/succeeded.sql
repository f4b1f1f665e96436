-- Serves get: a job that succeeded lives in its last history row, while its body is kept.
select *
  from penstock_history
 where job = ?
   and kind = 'attempt'
   and state = 'succeeded'
   and body is not null
 order by position desc
 limit 1;
