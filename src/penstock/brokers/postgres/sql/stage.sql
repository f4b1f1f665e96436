-- Keep jobs of one part of a write; what it holds already is left as it is.
insert into penstock.staged (write, part, id, lane, jobs, lengths, bodies, at)
select %s::text, %s::text, t.id, t.lane, t.jobs, t.lengths, t.bodies, %s::double precision
  from unnest(%s::uuid[], %s::bigint[], %s::integer[], %s::bytea[], %s::bytea[])
       as t (id, lane, jobs, lengths, bodies)
    on conflict do nothing;
