-- Serves claim, recover and prune: jobs of flows whose time to start is over while they wait.
select id, body
  from penstock_job
 where state = 'waiting'
   and expires_at <= :now
 order by expires_at
 limit 1000;
