-- Hand due rows of a lane to a worker. The attempt is the fence of everything it will write.
update penstock_job
   set state = 'running',
       attempt = attempt + 1,
       worker = :worker,
       claimed_at = :now,
       cancelled = 0
 where id in (
    select id
      from penstock_job
     where lane = :lane
       and state = 'ready'
       and run_at <= :now
     order by run_at, id
     limit :limit
 )
returning *;
