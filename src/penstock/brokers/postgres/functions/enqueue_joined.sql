-- Store jobs in a caller's transaction. One parameter, so that every driver can send it. What can be
-- refused is answered, not raised: an error would abort the caller's transaction. Then nothing was written.
-- Takes
-- {"store", "now", "notify", "batch": {id, count, rows} or null,
--  "parcels": [{id, run, last, lane, jobs, lengths, bodies, cut}],
--  "jobs": [as enqueue_jobs takes them], "flow": as enqueue_flow takes it, or null};
-- lengths and bodies in base64; `cut`: sent again, its jobs may be packed into other parcels.
-- Answers {"known": [ids], "standing": {id: job}, "batch": rows} or
-- {"refused": "store" | "old" | "batch" | "flow", "id", "rows"}.
create or replace function penstock.enqueue_joined(p_sent jsonb) returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_now double precision := (p_sent ->> 'now')::double precision;
    v_batch jsonb := p_sent -> 'batch';
    v_rows bigint := 0;
    v_old uuid;
    v_parcel record;
    v_known jsonb := '[]';
    v_answer jsonb;
    v_lanes text;
begin
    if jsonb_typeof(p_sent -> 'flow') = 'object' then
        return penstock.enqueue_joined_flow(p_sent -> 'flow', p_sent - 'flow');
    end if;
    if p_sent ->> 'store' is distinct from (select value from penstock.meta where name = 'store') then
        return jsonb_build_object('refused', 'store');
    end if;
    select t.id into v_old
      from jsonb_array_elements(p_sent -> 'parcels' || (p_sent -> 'jobs')) as o (sent),
           jsonb_to_record(o.sent) as t (id uuid)
     order by t.id
     limit 1;
    if v_old < (
        select penstock.first_id(m.value::double precision)
          from penstock.meta m
         where m.name = 'pruned_before'
    ) then
        return jsonb_build_object('refused', 'old', 'id', v_old);
    end if;
    if jsonb_typeof(v_batch) = 'object' then
        -- As in enqueue.sql: waits for another call that is just committing the first rows of this batch.
        insert into penstock.batch as b (id, rows, at) values (v_batch ->> 'id', 0, v_now)
            on conflict (id) do update set at = b.at
        returning b.rows into v_rows;
        if (v_batch ->> 'rows')::bigint > 0 then
            if v_rows <> (v_batch ->> 'count')::bigint then
                return jsonb_build_object('refused', 'batch', 'rows', v_rows);
            end if;
            v_rows := v_rows + (v_batch ->> 'rows')::bigint;
            insert into penstock.batch as b (id, rows, at)
            values (v_batch ->> 'id', v_rows, v_now)
                on conflict (id) do update set rows = excluded.rows, at = excluded.at;
        end if;
    end if;
    perform penstock.lock_runs(array(
        select t.run
          from jsonb_array_elements(p_sent -> 'parcels') as o (parcel),
               jsonb_to_record(o.parcel) as t (id uuid, run uuid, jobs integer, cut boolean)
         where t.cut and (t.jobs > 1 or t.id <> t.run)
    ));
    for v_parcel in
        select t.*
          from jsonb_array_elements(p_sent -> 'parcels') as o (parcel),
               jsonb_to_record(o.parcel) as t (
                   id uuid, run uuid, last uuid, lane bigint, jobs integer, lengths text, bodies text
               )
    loop
        v_known := v_known || penstock.enqueue_unsent(
            v_parcel.id, v_parcel.run, v_parcel.last, v_parcel.lane, v_parcel.jobs,
            decode(v_parcel.lengths, 'base64'), decode(v_parcel.bodies, 'base64')
        );
    end loop;
    v_answer := penstock.enqueue_jobs(p_sent -> 'jobs', v_now);
    if (p_sent ->> 'notify')::boolean then
        select case when count(distinct o.sent ->> 'lane') <= 50
                    then string_agg(distinct o.sent ->> 'lane', ',') else '' end
          into v_lanes
          from jsonb_array_elements(p_sent -> 'parcels' || (p_sent -> 'jobs')) as o (sent);
        perform pg_notify('penstock', v_lanes) where v_lanes is not null;
    end if;
    return v_answer
        || jsonb_build_object('known', v_known || (v_answer -> 'known'), 'batch', v_rows);
end
$$;

-- A flow and its jobs: either all are new, or all were sent before; anything else is refused.
create or replace function penstock.enqueue_joined_flow(p_flow jsonb, p_sent jsonb) returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_answer jsonb;
    v_new boolean;
begin
    -- The flow's row first: that waits for whoever sends the same flow at this moment.
    if p_sent ->> 'store' = (select value from penstock.meta where name = 'store') then
        v_new := penstock.enqueue_flow(p_flow, (p_sent ->> 'now')::double precision);
    end if;
    v_answer := penstock.enqueue_joined(p_sent);
    if v_answer ? 'refused' then
        raise exception using errcode = 'PN002', message = v_answer;
    elsif jsonb_array_length(v_answer -> 'known') = (p_flow ->> 'jobs')::bigint then
        if v_new then  -- the flow was pruned, but its jobs are remembered
            raise exception using errcode = 'PN002', message = v_answer;
        end if;
    elsif jsonb_array_length(v_answer -> 'known') > 0 or not v_new then
        raise exception using errcode = 'PN002', message = jsonb_build_object(
            'refused', 'flow', 'id', coalesce(v_answer -> 'known' -> 0, p_flow -> 'id')
        );
    end if;
    return v_answer;
exception
    when sqlstate 'PN002' then  -- rolled back to the begin above; the caller's transaction goes on
        return sqlerrm::jsonb;
end
$$;

-- Store a parcel without the jobs in it that were sent before; answers the ids of those. If there are
-- any, which is rare, the others are stored one by one.
create or replace function penstock.enqueue_unsent(
    p_id uuid,
    p_run uuid,
    p_last uuid,
    p_lane bigint,
    p_jobs integer,
    p_lengths bytea,
    p_bodies bytea
) returns jsonb
language plpgsql
set enable_seqscan = off
set jit = off
as $$
declare
    v_sent record;
    v_known jsonb := '[]';
    v_id uuid;
    v_size integer;
    v_before integer := 0;
begin
    select s.id, s.jobs into v_sent
      from penstock.sent s
     where s.id between p_run and p_last
     order by s.id desc
     limit 1;
    if not found or penstock.id_after(v_sent.id, v_sent.jobs - 1) < p_id then
        -- This waits for another sender of the same id, and then does nothing.
        insert into penstock.sent (id, jobs, lane) values (p_id, p_jobs, p_lane)
            on conflict do nothing;
        if found then
            insert into penstock.parcel (lane, id, jobs, lengths, bodies)
            values (p_lane, p_id, p_jobs, p_lengths, p_bodies);
            insert into penstock.tally (lane, state, minute, jobs)
            values (p_lane, 'ready', 0, p_jobs);
            return v_known;
        end if;
    end if;
    if p_jobs = 1 then
        return jsonb_build_array(p_id);
    end if;
    for i in 0 .. p_jobs - 1 loop
        v_id := penstock.id_after(p_id, i);
        v_size := penstock.total_of(substr(p_lengths, 4 * i + 1, 4), 1);
        v_known := v_known || penstock.enqueue_unsent(
            v_id, p_run, v_id, p_lane, 1,
            substr(p_lengths, 4 * i + 1, 4), substr(p_bodies, v_before + 1, v_size)
        );
        v_before := v_before + v_size;
    end loop;
    return v_known;
end
$$;
