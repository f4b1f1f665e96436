-- Read one job from whichever table it is in.

-- name: get
-- The job's own row.
select * from penstock.job where id = %s;

-- name: lease_of
-- Serves get and find: the leases that may hold a job, by its run of ids; the caller checks the rest.
select id, worker, lane, claimed_at, penstock.ids_in(firsts, counts) as ids, lengths, bodies, marks, attempt, spared
  from penstock.lease
 where position(substr(%s::bytea, 1, 14) in firsts) > 0;

-- name: parcel_before
-- The parcel that may hold an id: the last one that begins at or before it, in its run of ids. Its lane is
-- in penstock.sent.
with wanted as materialized (select %s::uuid as run, %s::uuid as id),
sent as materialized (
    select s.lane
      from penstock.sent s
     where s.id between (select run from wanted) and (select id from wanted)
     order by s.id desc
     limit 1
),
lanes as (  -- all of them for a job that waits for longer than ids are remembered
    select lane from sent
     union all
    select l.hash from penstock.lane l where not exists (select 1 from sent)
)
select held.*
  from lanes,
       lateral (
           select p.id, p.lane, p.jobs, p.lengths, p.bodies, p.attempt, p.spared
             from penstock.parcel p
            where p.lane = lanes.lane
              and p.id between (select run from wanted) and (select id from wanted)
            order by p.id desc
            limit 1
       ) as held
 order by held.id desc
 limit 1;

-- name: succeeded
-- A job that succeeded: its last row in the history, while its body is kept.
select *
  from penstock.history
 where job = %s
   and kind = 'attempt'
   and state = 'succeeded'
   and body is not null
 order by position desc
 limit 1;

-- name: get_many
-- The rows of these jobs.
select * from penstock.job where id = any (%s::uuid[]);

-- name: succeeded_many
-- Those of these jobs that succeeded, as `succeeded`.
select distinct on (h.job) h.*
  from penstock.history h
 where h.job = any (%s::uuid[])
   and h.kind = 'attempt'
   and h.state = 'succeeded'
   and h.body is not null
 order by h.job, h.position desc;

-- name: lane
-- Serves every verb: a lane by its hash.
select app, queue, task, version, priority, runs_on, search from penstock.lane where hash = %s;
