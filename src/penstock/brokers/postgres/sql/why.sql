-- Why a job does not run.

-- name: ahead
-- How many jobs of the lane come before one; up to 1,000 parcels and 1,000 rows are counted.
select (select coalesce(sum(jobs), 0)
          from (select jobs from penstock.parcel where lane = %(lane)s and id < %(id)s limit 1000) as before)
     + (select count(*)
          from (select 1
                  from penstock.job
                 where lane = %(lane)s
                   and state = 'ready'
                   and run_at <= %(now)s
                   and id < %(id)s
                 limit 1000) as due) as jobs;

-- name: behind
-- Serves why in an ordered queue: the jobs of its key that hold a job back: a running one, the first ready
-- and the first failed one.
with of_key as (
    select j.id, j.state
      from json_array_elements_text(%(lanes)s::json) as l (hash)
      join penstock.job j
        on j.lane = l.hash::bigint
       and coalesce(hashtextextended(nullif(j.key, ''), 0), 0) = hashtextextended(%(key)s, 0)
     where j.key is not null
       and j.state in ('failed', 'ready', 'running')
       and j.key = %(key)s
)
select (select id from of_key where state = 'running' and id <> %(id)s order by id limit 1) as running,
       (select id from of_key where state = 'ready' and id < %(id)s order by id limit 1) as ready,
       (select id from of_key where state = 'failed' and id < %(id)s order by id limit 1) as failed;

-- name: queue_lanes
-- Serves why in an ordered queue: its lanes.
select hash from penstock.lane where queue = %s;

-- name: unmet
-- The nodes that a node waits for.
select n.id, n.flow, n.task, n.jobs, n.needs_left, n.jobs_left, n.bad, n.on_failure
  from penstock.need e
  join penstock.node n on n.id = e.need
 where e.node = %s
   and not e.met
 order by e.place;
