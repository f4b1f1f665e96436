-- Cancel jobs; and lock the rows that cancel, retry and delete change.

-- name: ask_cancel
-- Ask a running job to end: its worker reads this when it renews.
update penstock.job set cancelled = true where id = %s;

-- name: locked_row
-- Serves cancel, retry and delete: the job's own row, locked.
select * from penstock.job where id = %s for update;

-- name: locked_leases
-- Serves cancel and delete: the leases that may hold jobs of a run of ids, locked in id order. The ids of
-- a run have the same first 14 bytes; the caller checks the rest.
select id, worker, lane, claimed_at, penstock.ids_in(firsts, counts) as ids, lengths, bodies, marks, attempt, spared
  from penstock.lease
 where position(substr(%s::bytea, 1, 14) in firsts) > 0
 order by id
   for update;

-- name: locked_parcel
-- Serves cancel and delete: as parcel_before, locked.
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
              for update
       ) as held
 order by held.id desc
 limit 1;

-- name: keep_claims_out
-- Serves cancel and delete: wait for claims that are under way, and keep others out until the commit.
select pg_advisory_xact_lock(4855284201);

-- name: members_of
-- Serves cancel, retry and delete: all jobs of a flow.
select m.first, m.last
  from penstock.node n
  join penstock.member m on m.node = n.id
 where n.flow = %s
 order by m.first;

-- name: members_among
-- Serves cancel, retry and delete: which of these jobs are members of flows and do not run: a settlement
-- that has locked the flow may change them.
select j.id, j.body
  from penstock.job j
 where j.id = any(%s)
   and j.state in ('waiting', 'failed', 'cancelled')
   and position('"flow":'::bytea in j.body) > 0;

-- name: rows_between
-- Serves cancel, retry and delete of a whole flow: the rows of a range of ids, locked in id order.
select *
  from penstock.job
 where id between %(first)s and %(last)s
   and state in (select json_array_elements_text(%(states)s::json))
 order by id
   for update;

-- name: parcels_between
-- Serves cancel and delete of a whole flow: the parcels that hold jobs of a range, locked. The first may
-- begin before the range, in the same run of ids; penstock.sent has their lanes.
with sent as materialized (
    select distinct s.lane from penstock.sent s where s.id between %(run)s and %(last)s
),
lanes as (  -- all of them for jobs that wait for longer than ids are remembered
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
              and p.id between %(run)s and %(last)s
            order by p.id
              for update
       ) as held;
