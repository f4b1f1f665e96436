-- Find one job, wherever it is.

-- name: get
-- The job's own row.
select * from penstock.job where id = %s;

-- name: lease_of
-- Serves get and find: the leases that may hold a job, found by its run of ids; the caller checks.
select id, worker, lane, claimed_at, penstock.ids_in(firsts, counts) as ids, lengths, bodies, marks
  from penstock.lease
 where position(substr(%s::bytea, 1, 14) in firsts) > 0;

-- name: parcel_before
-- The parcel that would hold an id is the last one that starts at or before it, within its run of
-- ids; what was sent says in which lane.
with wanted as materialized (select %s::uuid as run, %s::uuid as id),
sent as materialized (
    select s.lane
      from penstock.sent s
     where s.id between (select run from wanted) and (select id from wanted)
     order by s.id desc
     limit 1
),
lanes as (  -- of a job that waits for longer than ids are remembered, any
    select lane from sent
     union all
    select l.hash from penstock.lane l where not exists (select 1 from sent)
)
select held.*
  from lanes,
       lateral (
           select p.id, p.lane, p.jobs, p.lengths, p.bodies
             from penstock.parcel p
            where p.lane = lanes.lane
              and p.id between (select run from wanted) and (select id from wanted)
            order by p.id desc
            limit 1
       ) as held
 order by held.id desc
 limit 1;

-- name: succeeded
-- A job that succeeded lives in its last history row, while its body is kept.
select *
  from penstock.history
 where job = %s
   and kind = 'attempt'
   and state = 'succeeded'
   and body is not null
 order by position desc
 limit 1;

-- name: lane
-- Serves every verb that shows a lane as the words it stands for.
select app, queue, task, version, priority, runs_on, search from penstock.lane where hash = %s;
