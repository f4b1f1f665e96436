-- Serves stage, where some of the parcels are staged already: those are left as they are.
with kept as (
    insert into penstock.parcel (lane, id, jobs, lengths, bodies)
    select penstock.lane_staged(), t.id, t.jobs, t.lengths, t.bodies
      from unnest(%(ids)s::uuid[], %(jobs)s::integer[], %(lengths)s::bytea[], %(bodies)s::bytea[])
           as t (id, jobs, lengths, bodies)
        on conflict do nothing
    returning id, jobs
)
insert into penstock.staged (write, part, id, lane, jobs, at)
select %(write)s, %(part)s, k.id, t.lane, k.jobs, %(now)s
  from kept k
  join unnest(%(ids)s::uuid[], %(lanes)s::bigint[]) as t (id, lane) on t.id = k.id
returning id;
