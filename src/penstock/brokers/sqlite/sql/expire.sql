-- Serves claim, recover and prune: ready jobs whose time to start is over.
select *
  from penstock_job
 where state = 'ready'
   and expires_at <= :now
 order by expires_at
 limit 1000;
