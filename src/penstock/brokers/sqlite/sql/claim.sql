-- Hand due jobs to a worker.

-- name: claim
-- Hand the first rows of a lane to a worker: as many as `claim_due` found to be due, in the same order. The
-- attempt is the fence of everything it will write.
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
     order by run_at, id
     limit :limit
 )
returning *;

-- name: claim_due
-- The rows of a lane that are due, oldest first.
select run_at, id, spared
  from penstock_job
 where lane = :lane
   and state = 'ready'
   and run_at <= :now
 order by run_at, id
 limit :limit;

-- name: claim_one
-- Serves claim where a rule or a limit is about single jobs: one row that was picked.
update penstock_job
   set state = 'running',
       attempt = attempt + 1,
       worker = :worker,
       claimed_at = :now,
       cancelled = 0
 where id = :id
returning *;

-- name: claim_parcels
-- The oldest parcels of a lane; the caller stops reading when it has enough.
select id, jobs, lengths, bodies, attempt, spared
  from penstock_parcel
 where lane = ?
 order by id;

-- name: claim_picked
-- Serves claim where a rule or a limit is about single jobs: the next due row of a lane after a place
-- that no rule by tag keeps back and whose key is not full. One at a time: rows of a key that has just become
-- full are then passed by in here.
select j.run_at, j.id, j.key
  from penstock_job j
  join penstock_lane l on l.hash = j.lane
 where j.lane = :lane
   and j.state = 'ready'
   and j.run_at <= :now
   and (j.run_at, j.id) > (:run_at, :id)
   and (j.key is null or j.key not in (select value from json_each(:full)))
   and (not :ruled
        or not exists (
            select 1
              from penstock_rule r
             where r.kind in ('block', 'pause')
               and r.tag <> ''
               and r.queue in ('', l.queue)
               and r.task in ('', l.task)
               and r.version in (-1, l.version)
               and r.key in ('', j.key)
               and exists (select 1 from penstock_tag t
                            where t.name = r.tag and t.value = r.tag_value and t.job = j.id)
               and (r.until is null or r.until > :now)
        ))
 order by j.run_at, j.id
 limit 1;

-- name: busy_lanes
-- The lanes that have anything ready, each with its oldest parcel, its earliest row, and when the next of
-- its rows is due. Skips from lane to lane, so the cost is that of the lanes, however many jobs are in
-- them.
with recursive packed (lane) as (
    select min(lane) from penstock_parcel
     union all
    select (select min(lane) from penstock_parcel where lane > packed.lane)
      from packed
     where packed.lane is not null
),
loose (lane) as (
    select min(lane) from penstock_job where state = 'ready'
     union all
    select (select min(lane) from penstock_job where state = 'ready' and lane > loose.lane)
      from loose
     where loose.lane is not null
)
select lane,
       (select min(id) from penstock_parcel where lane = packed.lane) as first,
       null as run_at,
       null as next_due
  from packed
 where lane is not null
 union all
select lane,
       null,
       (select min(run_at) from penstock_job where state = 'ready' and lane = loose.lane),
       (select min(run_at) from penstock_job where state = 'ready' and lane = loose.lane and run_at > :now)
  from loose
 where lane is not null;

-- name: put_lease
-- One row for all that was taken from the parcels of a lane.
insert into penstock_lease (worker, lane, claimed_at, ids, lengths, bodies, marks, attempt, spared)
values (?, ?, ?, ?, ?, ?, ?, ?, ?)
returning id;

-- name: take_parcel
-- Serves claim, cancel and delete: the whole parcel is leaving.
delete from penstock_parcel where id = :id;

-- name: trim_parcel
-- The rest of a parcel, keyed by its first job.
update penstock_parcel
   set id = ?, jobs = ?, lengths = ?, bodies = ?
 where id = ?;

-- name: next_turn
-- Serves claim by keys in turn: the next key from this one on that has anything ready, with the
-- earliest row of it. Skips from key to key, however many jobs are in them.
select coalesce(key, '') as turn, run_at, id, key
  from penstock_job
 where lane = :lane
   and state = 'ready'
   and coalesce(key, '') >= :turn
 order by coalesce(key, ''), run_at, id
 limit 1;

-- name: oldest_turn
-- Serves claim in a queue that is handed out in batches: the key of the job that was due first.
select coalesce(key, '') as turn
  from penstock_job
 where lane = :lane
   and state = 'ready'
   and run_at <= :now
 order by run_at, id
 limit 1;

-- name: turn_first
-- Serves claim in an ordered queue: the first ready jobs of a key in a lane, by id; `ruled` if a rule
-- by tag keeps one back. That it is one of three states is what the index is asked by.
select j.id, j.run_at,
       j.failures > 0 or j.lapses > 0 as tried,
       :ruled
       and exists (
            select 1
              from penstock_lane l
              join penstock_rule r
                on r.kind in ('block', 'pause')
               and r.tag <> ''
               and r.queue in ('', l.queue)
               and r.task in ('', l.task)
               and r.version in (-1, l.version)
               and r.key in ('', j.key)
             where l.hash = j.lane
               and exists (select 1 from penstock_tag t
                            where t.name = r.tag and t.value = r.tag_value and t.job = j.id)
               and (r.until is null or r.until > :now)
       ) as ruled
  from penstock_job j
 where j.lane = :lane
   and j.key = :key
   and j.state = 'ready'
   and j.state in ('failed', 'ready', 'running')
 order by j.id
 limit :limit;

-- name: turn_rows
-- Serves claim by keys in turn: due rows of one key after a place, without those that a rule by tag
-- keeps back.
select j.run_at, j.id, j.key
  from penstock_job j
  join penstock_lane l on l.hash = j.lane
 where j.lane = :lane
   and j.state = 'ready'
   and coalesce(j.key, '') = :turn
   and j.run_at <= :now
   and (j.run_at, j.id) > (:run_at, :id)
   and (not :ruled
        or not exists (
            select 1
              from penstock_rule r
             where r.kind in ('block', 'pause')
               and r.tag <> ''
               and r.queue in ('', l.queue)
               and r.task in ('', l.task)
               and r.version in (-1, l.version)
               and r.key in ('', j.key)
               and exists (select 1 from penstock_tag t
                            where t.name = r.tag and t.value = r.tag_value and t.job = j.id)
               and (r.until is null or r.until > :now)
        ))
 order by j.run_at, j.id
 limit :limit;

-- name: running_leases
-- Serves workers, and claim, count and why under a limit: what is held out of parcels, a row per claim in flight.
select lane, worker, marks from penstock_lease;

-- name: running_rows
-- Serves claim, count and why under a limit: the rows that run, by who holds them and by key.
select lane, worker, key, count(*) as jobs
  from penstock_job indexed by penstock_job_held
 where state = 'running'
   and worker is not null
 group by lane, worker, key;

-- name: starts
-- Serves claim, count and why under a rate: what was started lately, of a limit and a key.
select id, boot, at, made_at, jobs
  from penstock_start
 where queue = :queue
   and task = :task
   and per_key = :per_key
   and key = :key;

-- name: put_start
-- So many jobs were started under a rate.
insert into penstock_start (queue, task, per_key, key, boot, at, made_at, jobs)
values (:queue, :task, :per_key, :key, :boot, :at, :made_at, :jobs);

-- name: move_start
-- When it was, in the time of this boot.
update penstock_start set at = ?, boot = ? where id = ?;

-- name: end_start
-- Its window is over.
delete from penstock_start where id = ?;

-- name: expire
-- Serves claim, recover and prune: ready jobs whose time to start is over.
select *
  from penstock_job
 where state = 'ready'
   and expires_at <= :now
 order by expires_at
 limit 1000;

-- name: expire_waiting
-- Serves claim, recover and prune: jobs of flows whose time to start is over while they wait.
select id, body
  from penstock_job
 where state = 'waiting'
   and expires_at <= :now
 order by expires_at
 limit 1000;
