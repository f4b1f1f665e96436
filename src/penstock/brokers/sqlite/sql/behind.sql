-- Serves claim and why in an ordered queue: what stands before a job of this key: one that runs, and
-- the first ready and the first failed one. Lane by lane, so that each is one step in the index.
select (select j.id
          from json_each(:lanes) l
         cross join penstock_job j
         where j.lane = l.value
           and j.key = :key
           and j.state = 'running'
           and j.state in ('failed', 'ready', 'running')
           and j.id <> :id
         limit 1) as running,
       (select min((select j.id
                      from penstock_job j
                     where j.lane = l.value
                       and j.key = :key
                       and j.state = 'ready'
                       and j.state in ('failed', 'ready', 'running')
                       and j.id < :id
                     order by j.id
                     limit 1))
          from json_each(:lanes) l) as ready,
       (select min((select j.id
                      from penstock_job j
                     where j.lane = l.value
                       and j.key = :key
                       and j.state = 'failed'
                       and j.state in ('failed', 'ready', 'running')
                       and j.id < :id
                     order by j.id
                     limit 1))
          from json_each(:lanes) l) as failed;
