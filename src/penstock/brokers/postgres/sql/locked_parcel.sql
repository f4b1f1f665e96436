-- Serves cancel and delete: the parcel that would hold an id, about to be unpacked; as parcel_before.
with wanted as (select %s::uuid as run, %s::uuid as id),
sent as (
    select s.lane
      from penstock.sent s, wanted w
     where s.id between w.run and w.id
     order by s.id desc
     limit 1
),
lanes as (  -- of a job that waits for longer than ids are remembered, any
    select lane from sent
     union all
    select l.hash from penstock.lane l where not exists (select 1 from sent)
)
select p.id, p.lane, p.jobs, p.lengths, p.bodies
  from penstock.parcel p, lanes, wanted w
 where p.lane = lanes.lane
   and p.id between w.run and w.id
 order by p.id desc
 limit 1
   for update of p;
