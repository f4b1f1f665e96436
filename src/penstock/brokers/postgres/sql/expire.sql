-- Serves claim, recover and prune: ready jobs whose time to start is over.
select *
  from penstock.job
 where state = 'ready'
   and expires_at <= %s
 order by expires_at
 limit 1000
   for update skip locked;
