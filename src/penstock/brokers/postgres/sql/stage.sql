-- Stage the parts of a write, and commit or discard it.

-- name: stage
-- Record that parcels, which stage_parcels has copied, belong to a part of a write.
insert into penstock.staged (write, part, id, lane, jobs, at)
select %(write)s, %(part)s, t.id, t.lane, t.jobs, %(now)s
  from unnest(%(ids)s::uuid[], %(lanes)s::bigint[], %(jobs)s::integer[]) as t (id, lane, jobs);

-- name: stage_again
-- Serves stage, if some of the parcels are staged already: those are left as they are.
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

-- name: stage_jobs
-- Stage single jobs; those that the part holds already are left as they are.
insert into penstock.staged (write, part, id, lane, jobs, body, at)
select %(write)s, %(part)s, t.id, t.lane, 1, t.body, %(now)s
  from unnest(%(ids)s::uuid[], %(lanes)s::bigint[], %(bodies)s::bytea[]) as t (id, lane, body)
    on conflict do nothing;

-- name: stage_parcels
-- Parcels into the lane of staged ones; by COPY, which costs half of an insert.
copy penstock.parcel (lane, id, jobs, lengths, bodies) from stdin (format binary)

-- name: staged
-- Serves commit_write: how many jobs each part of a write holds.
select part, sum(jobs)::bigint as jobs
  from penstock.staged
 where write = %s
 group by part;

-- name: staged_among
-- Serves stage: which of these parcels the part holds.
select id
  from penstock.staged
 where write = %(write)s
   and part = %(part)s
   and id = any (%(ids)s::uuid[])
   and body is null;

-- name: publish
-- Serves commit_write: record that the write is committed; no row if it was before.
insert into penstock.published (write, jobs, at)
values (%(write)s, %(jobs)s, %(now)s)
    on conflict do nothing;

-- name: publish_parts
-- Serves commit_write: turn the parts into jobs; see functions/publish.sql.
select penstock.publish_parts(%s, %s::text[], %s, %s);

-- name: published
-- Serves commit_write: how many jobs a committed write had.
select jobs from penstock.published where write = %s;

-- name: discard
-- Delete what is staged of a write.
select penstock.discard(%s);
