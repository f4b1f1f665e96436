-- Serves cancel and delete: the parcel that would hold an id, about to be unpacked; as parcel_before.
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
              for update
       ) as held
 order by held.id desc
 limit 1;
