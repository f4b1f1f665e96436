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

-- name: stage_apart
-- Stage jobs whose ids go on in a run of ids, to be stored by enqueue_jobs; those that the part holds
-- already are left as they are.
insert into penstock.staged (write, part, id, lane, jobs, body, at)
select %(write)s, %(part)s, t.id, t.lane, 1, t.body, %(now)s
  from unnest(%(ids)s::uuid[], %(lanes)s::bigint[], %(bodies)s::bytea[]) as t (id, lane, body)
    on conflict do nothing;

-- name: stage_call
-- A call of stage with jobs of their own; no row if the same call was made before.
insert into penstock.staged_call (write, part, call, jobs, oldest, tagged, has_unique, at)
values (%(write)s, %(part)s, %(call)s, %(jobs)s, %(oldest)s, %(tagged)s, %(has_unique)s, %(now)s)
    on conflict do nothing;

-- name: stage_jobs
-- The jobs of that call.
copy penstock.staged_job (
    call, id, lane, enqueued_at, body, key, run_at, at_most_once, unique_key, unique_until,
    unique_seconds, expires_at, tags, search, names
) from stdin (format binary)

-- name: stage_parcels
-- Parcels into the lane of staged ones; by COPY, which costs half of an insert.
copy penstock.parcel (lane, id, jobs, lengths, bodies) from stdin (format binary)

-- name: staged
-- Serves commit_write: how many jobs each part of a write holds.
select part, sum(jobs)::bigint as jobs
  from (
           select part, jobs from penstock.staged where write = %(write)s
           union all
           select part, jobs from penstock.staged_call where write = %(write)s
       ) as staged_rows
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
insert into penstock.published as p (write, jobs, at, token, epoch)
values (%(write)s, %(jobs)s, %(now)s, %(token)s, %(epoch)s)
    on conflict (write) do update
   set jobs = excluded.jobs, at = excluded.at, token = excluded.token, epoch = excluded.epoch
 where p.epoch < excluded.epoch;

-- name: publish_parts
-- Serves commit_write: turn the parts into jobs; see functions/publish.sql.
select penstock.publish_parts(%s, %s::text[], %s, %s);

-- name: publish_jobs
-- Serves commit_write: the same for jobs of their own; those that were stored before with another body.
select id, lane, body from penstock.publish_jobs(%s, %s::text[], %s, %s);

-- name: published
-- Serves commit_write: what is known of a committed write; no row if a later epoch stands for it.
select jobs, token
  from penstock.published
 where write = %(write)s
   and epoch = %(epoch)s;

-- name: discard
-- Delete what is staged of a write.
select penstock.discard(%s);
