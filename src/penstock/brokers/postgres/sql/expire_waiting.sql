-- Serves claim, recover and prune: jobs of flows whose time to start is over while they wait. Not
-- locked: that comes after the locks of their flows.
select j.id, j.body
  from penstock.job j
 where j.state = 'waiting'
   and j.expires_at <= %(now)s
 order by j.expires_at
 limit 1000;
