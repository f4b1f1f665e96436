-- Why a job does not run.

-- name: ahead
-- How many jobs of the lane come first, counted up to a bound.
select (select coalesce(sum(jobs), 0)
          from (select jobs from penstock_parcel where lane = :lane and id < :id limit 1000))
     + (select count(*)
          from (select 1
                  from penstock_job
                 where lane = :lane
                   and state = 'ready'
                   and run_at <= :now
                   and id < :id
                 limit 1000)) as jobs;

-- name: behind
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

-- name: queue_lanes
-- Serves claim and why in an ordered queue: its lanes.
select hash from penstock_lane where queue = ?;

-- name: unmet
-- The nodes that a node still waits for.
select n.id, n.flow, n.task, n.jobs, n.needs_left, n.jobs_left, n.bad, n.on_failure
  from penstock_need e
  join penstock_node n on n.id = e.need
 where e.node = ?
   and e.met = 0
 order by e.place;
