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

    -- The rest: single jobs, and the jobs of parcels that cannot be taken as they are; in pages of 200.
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
