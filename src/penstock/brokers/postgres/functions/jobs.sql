-- Jobs and attempts for people who query in SQL: `penstock.jobs`, `penstock.attempts`, and the functions
-- that look jobs up on an index. Columns are only ever added, at the end; a migration that changes a column
-- of a table below drops the views first, and this creates them again. Plain reads: no claim waits for one.

-- The JSON in these bytes; null where it is damaged, or cannot be a jsonb (it holds a NUL).
create or replace function penstock.json_of(p_text bytea) returns jsonb
language plpgsql immutable strict
as $$
begin
    return convert_from(p_text, 'UTF8')::jsonb;
exception when others then
    return null;
end
$$;

-- The arguments in a body, with *** in the place of those that are declared secret.
create or replace function penstock.shown_arguments(p_body jsonb) returns jsonb
language sql immutable
as $$
    select (p_body -> 'args') || coalesce(
        (select jsonb_object_agg(name, '***')
           from jsonb_array_elements_text(
                    case when jsonb_typeof(p_body -> 'secret') = 'array' then p_body -> 'secret' end
                ) as secret (name)
          where p_body -> 'args' ? name),
        '{}'
    )
$$;

-- The bodies of a parcel or a lease, each with its place. Of a damaged one there may be fewer.
create or replace function penstock.bodies_of(p_jobs integer, p_lengths bytea, p_bodies bytea)
returns table (place integer, body bytea)
language sql immutable strict
as $$
    select i, substr(p_bodies, 1 + (sum(size) over (order by i) - size)::integer, size)
      from (
        select i,
               least(
                   get_byte(p_lengths, 4 * i) + (get_byte(p_lengths, 4 * i + 1) << 8)
                   + (get_byte(p_lengths, 4 * i + 2) << 16), length(p_bodies)
               ) as size
          from generate_series(0, least(p_jobs, length(p_lengths) / 4) - 1) as i
      ) as sizes
$$;

-- Serves the view: jobs that have a row of their own, and those that succeeded and are kept.
create or replace view penstock.jobs_in_rows as
select j.id, j.lane, j.state, j.reason, j.attempt, j.failures, j.lapses, j.key, j.unique_key, j.tags,
       j.enqueued_at, j.run_at, j.claimed_at as started_at, j.ended_at, j.expires_at, j.worker, j.error,
       j.body, null::bytea as result, 'row'::text as stored_in, null::uuid as first
  from penstock.job j
union all
select h.job, h.lane, h.state, h.reason, h.attempt, h.failures, h.lapses, h.key, null, h.tags,
       h.enqueued_at, h.run_at, h.started_at, h.at, null, h.worker, h.error,
       h.body, h.result, 'row', null
  from penstock.history h
 where h.job is not null
   and h.kind = 'attempt'
   and h.state = 'succeeded'
   and h.body is not null;

-- Serves the view: plain jobs that are ready, out of their parcels, and those that run, out of their leases.
create or replace view penstock.jobs_in_parcels as
select penstock.id_after(p.id, b.place) as id, p.lane, 'ready'::text as state, null::text as reason, p.attempt,
       0 as failures, 0 as lapses, null::text as key, null::text as unique_key, null::text as tags,
       penstock.made_at(penstock.id_after(p.id, b.place)) as enqueued_at,
       null::double precision as run_at, null::double precision as started_at,
       null::double precision as ended_at, null::double precision as expires_at, null::text as worker,
       null::text as error, b.body, null::bytea as result,
       'parcel'::text as stored_in, p.id as first
  from penstock.parcel p
 cross join lateral penstock.bodies_of(p.jobs, p.lengths, p.bodies) b
 where p.lane <> penstock.lane_staged()
union all
select i.id, l.lane, 'running', null, l.attempt,
       0, 0, null, null, null,
       penstock.made_at(i.id), null, l.claimed_at, null, null, l.worker,
       null, b.body, null, 'lease', null
  from penstock.lease l
 cross join lateral (select penstock.ids_in(l.firsts, l.counts) as ids offset 0) a
 cross join lateral penstock.bodies_of(length(l.marks), l.lengths, l.bodies) b
 cross join lateral (select encode(substr(a.ids, 16 * b.place + 1, 16), 'hex')::uuid as id) i
 where get_byte(l.marks, b.place) <> 1;

-- Serves the view and the lookups: what people see of such a row, and where it is.
create or replace view penstock.job_list as
select j.id,
       l.task,
       l.queue,
       l.app,
       l.version,
       l.priority,
       j.state,
       j.reason,
       j.key,
       j.unique_key,
       penstock.json_of(j.tags::bytea) as tags,
       (penstock.json_of(j.tags::bytea) ->> 'penstock.parent')::uuid as parent,
       (b.body -> 'flow' ->> 'id')::uuid as flow,
       j.attempt,
       j.failures,
       j.lapses,
       to_timestamp(j.enqueued_at) as enqueued_at,
       to_timestamp(j.run_at) as run_at,
       to_timestamp(j.started_at) as started_at,
       to_timestamp(j.ended_at) as ended_at,
       to_timestamp(j.expires_at) as expires_at,
       j.worker,
       j.error,
       penstock.shown_arguments(b.body) as arguments,
       b.body -> 'headers' as headers,
       penstock.json_of(j.result) as result,
       j.stored_in,
       j.lane,
       j.first
  from (
    select * from penstock.jobs_in_rows
    union all
    select * from penstock.jobs_in_parcels
  ) j
 cross join lateral (select penstock.json_of(j.body) as body) b
  left join penstock.lane l on l.hash = j.lane;

create or replace view penstock.jobs as
select id, task, queue, app, version, priority, state, reason, key, unique_key, tags, parent, flow,
       attempt, failures, lapses, enqueued_at, run_at, started_at, ended_at, expires_at, worker, error,
       arguments, headers, result
  from penstock.job_list;

-- The jobs of these ids. A parcel is found by its lane and first id; `p_packed` false: jobs that are known to
-- have rows of their own.
create or replace function penstock.jobs_by_id(p_ids uuid[], p_packed boolean default true)
returns setof penstock.jobs
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select id, task, queue, app, version, priority, state, reason, key, unique_key, tags, parent, flow,
           attempt, failures, lapses, enqueued_at, run_at, started_at, ended_at, expires_at, worker, error,
           arguments, headers, result
      from (
        select * from penstock.job_list where stored_in = 'row' and id = any(p_ids)
        union all
        select packed.*
          from unnest(p_ids) as wanted (id)
         cross join penstock.lane l
         cross join lateral (
             select p.id as first
               from penstock.parcel p
              where p.lane = l.hash and p.id <= wanted.id
              order by p.id desc
              limit 1
         ) as parcel
         cross join lateral (
             select *
               from penstock.job_list j
              where j.stored_in = 'parcel'
                and j.lane = l.hash
                and j.first = parcel.first
                and j.id = wanted.id
             offset 0
         ) as packed
         where p_packed
        union all
        select * from penstock.job_list where p_packed and stored_in = 'lease' and id = any(p_ids)
      ) as found
$$;
revoke all on function penstock.jobs_by_id(uuid[], boolean) from public;

-- The job that holds a unique key.
create or replace function penstock.jobs_by_unique_key(p_key text) returns setof penstock.jobs
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select *
      from penstock.jobs_by_id(array(select job from penstock.unique_key where key = p_key), false)
$$;
revoke all on function penstock.jobs_by_unique_key(text) from public;

-- The jobs with this tag.
create or replace function penstock.jobs_by_tag(p_name text, p_value text) returns setof penstock.jobs
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select *
      from penstock.jobs_by_id(
          array(select job from penstock.tag where name = p_name and value = p_value), false
      )
$$;
revoke all on function penstock.jobs_by_tag(text, text) from public;

-- Every attempt that ended, one row each; a job that was tried again has several.
create or replace view penstock.attempts as
select h.job as id,
       h.attempt,
       l.task,
       l.queue,
       l.app,
       l.version,
       l.priority,
       h.state,
       h.reason,
       h.key,
       penstock.json_of(h.tags::bytea) as tags,
       (penstock.json_of(h.tags::bytea) ->> 'penstock.parent')::uuid as parent,
       h.failures,
       h.lapses,
       to_timestamp(h.enqueued_at) as enqueued_at,
       to_timestamp(h.run_at) as run_at,
       to_timestamp(h.started_at) as started_at,
       to_timestamp(h.at) as ended_at,
       h.worker,
       h.error,
       penstock.shown_arguments(penstock.json_of(h.body)) as arguments,
       penstock.json_of(h.result) as result
  from penstock.history h
  left join penstock.lane l on l.hash = h.lane
 where h.kind = 'attempt';
