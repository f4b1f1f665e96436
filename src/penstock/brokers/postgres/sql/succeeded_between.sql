-- Serves delete: as succeeded, of a range of jobs.
select *
  from penstock.history
 where job between %(first)s and %(last)s
   and kind = 'attempt'
   and state = 'succeeded'
   and body is not null
 order by job;
