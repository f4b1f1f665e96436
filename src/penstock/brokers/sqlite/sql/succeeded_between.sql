-- Serves delete: as succeeded, of a range of jobs.
select *
  from penstock_history
 where job between :first and :last
   and kind = 'attempt'
   and state = 'succeeded'
   and body is not null
 order by job;
