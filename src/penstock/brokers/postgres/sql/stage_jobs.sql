-- Serves stage: jobs of their own; what the part holds already is left as it is.
insert into penstock.staged (write, part, id, lane, jobs, body, at)
select %(write)s, %(part)s, t.id, t.lane, 1, t.body, %(now)s
  from unnest(%(ids)s::uuid[], %(lanes)s::bigint[], %(bodies)s::bytea[]) as t (id, lane, body)
    on conflict do nothing;
