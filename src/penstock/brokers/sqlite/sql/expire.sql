-- Serves claim, recover and prune: jobs whose time to start is over, ready or waiting.
select *
  from (
    select *
      from penstock_job
     where state = 'ready'
       and expires_at <= ?1
     order by expires_at
     limit 1000
  )
 union all
select *
  from (
    select *
      from penstock_job
     where state = 'waiting'
       and expires_at <= ?1
     order by expires_at
     limit 1000
  );
