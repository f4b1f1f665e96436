-- Commit a staged write: turn what these parts hold into jobs, without ids that were sent before.
--
-- Unlike enqueue_parcels this locks no runs of ids: staged parcels were packed for this write, so another
-- sender of the same parcels waits at the primary key of penstock.sent.
create or replace function penstock.publish_parts(
    p_write text,
    p_parts text[],
    p_oldest double precision,  -- older ids are refused
    p_now double precision
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
    v_first uuid;
    v_last uuid;
    v_row record;
    v_sent record;
    v_known uuid[] := '{}';  -- parcels with ids that were sent before, or are staged twice
    v_page jsonb;
begin
    select s.id into v_first
      from penstock.staged s
     where s.write = p_write and s.part = any (p_parts)
       and s.id < 'ff000000-0000-0000-0000-000000000000'
     order by s.id
     limit 1;
    if v_first < penstock.first_id(p_oldest) then
        raise exception 'id % is older than what this store remembers', v_first
              using errcode = 'PN001';
    end if;
    perform penstock.check_pruned(v_first);
    select penstock.id_after(s.id, s.jobs - 1) into v_last
      from penstock.staged s
     where s.write = p_write and s.part = any (p_parts) and s.body is null
     order by s.id desc
     limit 1;

    -- Mostly no id in the range was sent. Else parcel by parcel: for a join, the planner reads every
    -- partition.
    perform 1 from penstock.sent s where s.id between penstock.run_of(v_first) and v_last limit 1;
    if found then
        for v_row in
            select s.id, s.jobs
              from penstock.staged s
             where s.write = p_write and s.part = any (p_parts) and s.body is null
        loop
            select s.id, s.jobs into v_sent
              from penstock.sent s
             where s.id between penstock.run_of(v_row.id) and penstock.id_after(v_row.id, v_row.jobs - 1)
             order by s.id desc
             limit 1;
            if found and penstock.id_after(v_sent.id, v_sent.jobs - 1) >= v_row.id then
                v_known := v_known || v_row.id;
            end if;
        end loop;
    end if;
    v_known := v_known || array(
        select t.id
          from (
                   select s.id,
                          lag(penstock.id_after(s.id, s.jobs - 1)) over (order by s.id, s.part) as before
                     from penstock.staged s
                    where s.write = p_write and s.part = any (p_parts) and s.body is null
               ) t
         where t.before >= t.id
    );

    perform penstock.publish_parcels(p_write, p_parts, v_known);

    -- The rest: jobs in a run of ids, and those of parcels that cannot be taken as they are; in pages of 200.
    for v_page in
        select jsonb_agg(t.job)
          from (
                   select p.job, row_number() over () / 200 as page
                     from (
                              select convert_from(s.body, 'UTF8')::jsonb as job
                                from penstock.staged s
                               where s.write = p_write and s.part = any (p_parts) and s.body is not null
                               order by s.id
                          ) p
                   union all
                   select penstock.job_in(p.id, s.lane, p.lengths, p.bodies, i), -1
                     from penstock.staged s
                     join penstock.parcel p on p.lane = penstock.lane_staged() and p.id = s.id,
                          generate_series(0, p.jobs - 1) as i
                    where s.write = p_write and s.part = any (p_parts) and s.body is null
                      and s.id = any (v_known)
               ) t
         group by t.page
         order by t.page
    loop
        perform penstock.enqueue_jobs(v_page, p_now);
    end loop;
end
$$;

-- Serves publish_parts: move all parcels but p_not into their lanes. enable_nestloop is off to force a
-- hash join: with statistics of empty tables the planner would scan all parcels once for each.
create or replace function penstock.publish_parcels(p_write text, p_parts text[], p_not uuid[]) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_nestloop = off
set jit = off
as $$
begin
    insert into penstock.sent (id, jobs, lane)
    select s.id, s.jobs, s.lane
      from penstock.staged s
     where s.write = p_write and s.part = any (p_parts) and s.body is null
       and s.id <> all (p_not);
    insert into penstock.tally (lane, state, minute, jobs)
    select s.lane, 'ready', 0, sum(s.jobs)
      from penstock.staged s
     where s.write = p_write and s.part = any (p_parts) and s.body is null
       and s.id <> all (p_not)
     group by s.lane;
    update penstock.parcel p
       set lane = s.lane
      from penstock.staged s
     where s.write = p_write and s.part = any (p_parts) and s.body is null
       and s.id <> all (p_not)
       and p.lane = penstock.lane_staged() and p.id = s.id;
end
$$;

-- Delete what is staged of a write.
create or replace function penstock.discard(p_write text) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_nestloop = off
set jit = off
as $$
begin
    delete from penstock.parcel p
     using penstock.staged s
     where s.write = p_write and s.body is null
       and p.lane = penstock.lane_staged() and p.id = s.id;
    delete from penstock.staged s where s.write = p_write;
    delete from penstock.staged_job s
     using penstock.staged_call c
     where c.write = p_write and s.call = c.call;
    delete from penstock.staged_call c where c.write = p_write;
end
$$;

-- The first id of a run of ids.
create or replace function penstock.run_of(p_id uuid) returns uuid
language sql immutable strict parallel safe
as $$
    select (left(p_id::text, 33) || '000')::uuid
$$;

-- One job of a parcel, as penstock.enqueue_jobs takes it.
create or replace function penstock.job_in(
    p_id uuid,
    p_lane bigint,
    p_lengths bytea,
    p_bodies bytea,
    p_place integer
) returns jsonb
language sql immutable strict parallel safe
as $$
    select jsonb_build_object(
        'id', penstock.id_after(p_id, p_place),
        'run', penstock.run_of(p_id),
        'lane', p_lane,
        'enqueued_at', penstock.made_at(p_id),
        'at_most_once', false,
        'body', convert_from(
            substr(
                p_bodies,
                penstock.total_of(p_lengths, p_place) + 1,
                penstock.total_of(p_lengths, p_place + 1) - penstock.total_of(p_lengths, p_place)
            ),
            'UTF8'
        )
    )
$$;

-- Commit the jobs of their own of a staged write, a statement for all of them. Mostly none was stored
-- before, so they are inserted as they are; where the primary key of penstock.sent says otherwise, those are
-- taken out first. Returns derived ids that were stored before, or are staged twice, with another body.
--
-- Each has an id that only the same id can overlap, so no runs of ids are locked (see publish_parts).
create or replace function penstock.publish_jobs(
    p_write text,
    p_parts text[],
    p_oldest double precision,  -- older ids are refused
    p_now double precision
) returns table (id uuid, lane bigint, body bytea)
language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_column
declare
    v_calls uuid[];
    v_oldest uuid;
    v_tagged boolean;
    v_unique boolean;
begin
    select array_agg(c.call), bool_or(c.tagged), bool_or(c.has_unique) into v_calls, v_tagged, v_unique
      from penstock.staged_call c
     where c.write = p_write and c.part = any (p_parts);
    if v_calls is null then
        return;
    end if;
    select c.oldest into v_oldest
      from penstock.staged_call c
     where c.call = any (v_calls) and c.oldest is not null
     order by c.oldest
     limit 1;
    if v_oldest < penstock.first_id(p_oldest) then
        raise exception 'id % is older than what this store remembers', v_oldest
              using errcode = 'PN001';
    end if;
    perform penstock.check_pruned(v_oldest);
    for v_try in 1 .. 3 loop
        if v_try > 1 or v_unique then
            return query select k.id, k.lane, k.body from penstock.take_out_known(v_calls) k;
        end if;
        begin
            if v_unique then
                perform penstock.take_unique_keys(v_calls, p_now);
            end if;
            insert into penstock.sent (id, jobs, lane, at)
            select s.id, 1, s.lane, case when s.enqueued_at is null then p_now end
              from penstock.staged_job s
             where s.call = any (v_calls);
            exit;
        exception when unique_violation then
            if v_try = 3 then
                raise;
            end if;
        end;
    end loop;
    -- The time of an id may be slightly ahead of p_now: a job without run_at is due now.
    insert into penstock.job (
        id, lane, state, run_at, minute, enqueued_at, at_most_once, key, unique_key, unique_until,
        unique_seconds, expires_at, tags, search, body
    )
    select s.id, s.lane, 'ready', coalesce(s.run_at, least(s.enqueued_at, p_now), p_now),
           case when s.run_at > p_now then floor(s.run_at / 60) else 0 end,
           coalesce(s.enqueued_at, p_now), s.at_most_once, s.key, s.unique_key, s.unique_until,
           s.unique_seconds, s.expires_at, s.tags, s.search, s.body
      from penstock.staged_job s
     where s.call = any (v_calls);
    insert into penstock.tally (lane, state, minute, jobs)
    select s.lane, 'ready', case when s.run_at > p_now then floor(s.run_at / 60) else 0 end as minute, count(*)
      from penstock.staged_job s
     where s.call = any (v_calls)
     group by s.lane, minute;
    if not v_tagged then
        return;
    end if;
    insert into penstock.tag (name, value, job)
    select distinct n.pair ->> 0, n.pair ->> 1, s.id
      from penstock.staged_job s, jsonb_array_elements(s.names::jsonb) as n (pair)
     where s.call = any (v_calls) and s.names is not null;
    -- The history of a detached job begins when it is queued.
    insert into penstock.history (
        kind, at, job, lane, attempt, state, key, enqueued_at, run_at, tags, data
    )
    select 'event', p_now, s.id, s.lane, 0, 'ready', s.key, coalesce(s.enqueued_at, p_now),
           coalesce(s.run_at, least(s.enqueued_at, p_now), p_now), s.tags,
           convert_to('{"name":"queued","value":{}}', 'UTF8')
      from penstock.staged_job s
     where s.call = any (v_calls) and s.names::jsonb @> '[["detached", "yes"]]';
end
$$;

-- Serves publish_jobs: delete staged jobs whose id was stored before, or is staged twice; of the first those
-- that the store still has. Returns the ones with derived ids whose body is another.
-- A nested loop reads only the partition of penstock.sent that an id is in; a hash join would read all.
create or replace function penstock.take_out_known(p_calls uuid[])
returns table (id uuid, lane bigint, body bytea)
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
#variable_conflict use_column
begin
    return query
    with ranked as materialized (
        select s.ctid as place, s.body,
               row_number() over same_id as number,
               first_value(s.body) over same_id as first_body,
               first_value(s.lane) over same_id as first_lane
          from penstock.staged_job s
         where s.call = any (p_calls)
        window same_id as (partition by s.id order by s.call, s.ctid)
    ),
    taken_out as (
        delete from penstock.staged_job s
         using ranked r
         where r.number > 1 and s.ctid = r.place
        returning s.id, s.lane, s.body, r.first_body, r.first_lane
    )
    select t.id, t.lane, t.body
      from taken_out t
     where (t.lane, t.body) is distinct from (t.first_lane, t.first_body)
       and t.id >= 'ff000000-0000-0000-0000-000000000000';
    return query
    with taken_out as (
        delete from penstock.staged_job s
         where s.call = any (p_calls)
           and exists (select from penstock.sent t where t.id = s.id)
        returning s.id, s.lane, s.body
    )
    select t.id, t.lane, t.body
      from taken_out t,
           lateral (
               select j.lane, j.body from penstock.job j where j.id = t.id
               union all
               select h.lane, h.body
                 from penstock.history h
                where h.job = t.id and h.state = 'succeeded' and h.body is not null
           ) as stored
     where (t.lane, t.body) is distinct from (stored.lane, stored.body)
       and t.id >= 'ff000000-0000-0000-0000-000000000000';
end
$$;

-- Serves publish_jobs: take the unique keys of staged jobs, and delete the jobs whose key another job holds.
-- Of two with the same key the first gets it. In the order of the keys, so that two calls cannot deadlock; a
-- key that is held is read without a lock (see take_unique).
create or replace function penstock.take_unique_keys(p_calls uuid[], p_now double precision) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off
as $$
begin
    delete from penstock.staged_job s
     using (
               select o.ctid as place,
                      row_number() over (partition by o.unique_key order by o.id) as number
                 from penstock.staged_job o
                where o.call = any (p_calls) and o.unique_key is not null
           ) as ranked
     where ranked.number > 1 and s.ctid = ranked.place;
    delete from penstock.staged_job s
     using penstock.unique_key u
     where s.call = any (p_calls) and u.key = s.unique_key
       and (u.expires_at is null or u.expires_at > p_now);
    insert into penstock.unique_key as u (key, job, until, expires_at)
    select s.unique_key, s.id, s.unique_until, p_now + s.unique_seconds
      from penstock.staged_job s
     where s.call = any (p_calls) and s.unique_key is not null
     order by s.unique_key
        on conflict (key) do update
       set job = excluded.job, until = excluded.until, expires_at = excluded.expires_at
     where u.expires_at <= p_now;
    -- Another transaction took the key meanwhile, and has committed.
    delete from penstock.staged_job s
     where s.call = any (p_calls) and s.unique_key is not null
       and not exists (select from penstock.unique_key u where u.key = s.unique_key and u.job = s.id);
end
$$;
