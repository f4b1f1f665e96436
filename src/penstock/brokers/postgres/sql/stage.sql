-- Say that these parcels, which were copied, are of one part of a write.
insert into penstock.staged (write, part, id, lane, jobs, at)
select %(write)s, %(part)s, t.id, t.lane, t.jobs, %(now)s
  from unnest(%(ids)s::uuid[], %(lanes)s::bigint[], %(jobs)s::integer[]) as t (id, lane, jobs);
