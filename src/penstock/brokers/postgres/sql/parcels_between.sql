-- Serves cancel and delete of a whole flow: the parcels that hold jobs of a range, about to be
-- unpacked. The first may begin before it, within its run of ids; what was sent says in which lanes.
with sent as materialized (
    select distinct s.lane from penstock.sent s where s.id between %(run)s and %(last)s
),
lanes as (  -- of jobs that wait for longer than ids are remembered, any
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
              and p.id between %(run)s and %(last)s
            order by p.id
              for update
       ) as held;
