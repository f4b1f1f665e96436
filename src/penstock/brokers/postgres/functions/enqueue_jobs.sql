-- Store jobs that need rows of their own, all or none. Each is a JSON object with the columns of
-- penstock.job; `state` is given only for jobs of a flow that are 'waiting'. Answers
-- {"known": [ids sent before], "standing": {id: the job that holds its unique key}}.
create or replace function penstock.enqueue_jobs(p_jobs jsonb, p_now double precision)
returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
    v_job record;
    v_sent record;
    v_known jsonb := '[]';
    v_standing jsonb := '{}';
    v_holder uuid;
    v_run_at double precision;
    v_minute integer;
    v_state text;
    v_lanes bigint[] := '{}';     -- of the stored jobs; with the next two, for one row of tally each
    v_states text[] := '{}';
    v_minutes integer[] := '{}';
begin
    perform penstock.lock_runs(array(
        select (o.job ->> 'run')::uuid
          from jsonb_array_elements(p_jobs) as o (job)
         where o.job ->> 'run' <> o.job ->> 'id'
           and o.job ->> 'enqueued_at' is not null
    ));
    -- In the order of unique keys, then of ids, so that two callers cannot deadlock; of two jobs with the
    -- same unique key, the first in the call gets it.
    for v_job in
        select t.*, o.place
          from jsonb_array_elements(p_jobs) with ordinality as o (job, place),
               jsonb_to_record(o.job) as t (
                   id uuid, run uuid, lane bigint, run_at double precision,
                   enqueued_at double precision, at_most_once boolean, key text, unique_key text,
                   unique_until text, unique_seconds double precision, expires_at double precision,
                   tags text, search text, body text, names jsonb, state text
               )
         order by t.unique_key nulls first, case when t.unique_key is null then t.id end, o.place
    loop
        select s.id, s.jobs into v_sent
          from penstock.sent s
         where s.id between v_job.run and v_job.id
         order by s.id desc
         limit 1;
        if found and penstock.id_after(v_sent.id, v_sent.jobs - 1) >= v_job.id then
            v_known := v_known || to_jsonb(v_job.id);
            continue;
        end if;
        if v_job.enqueued_at is not null then
            perform penstock.check_pruned(v_job.id);
        end if;
        if v_job.unique_key is not null then
            v_holder := penstock.take_unique(
                v_job.unique_key, v_job.id, v_job.unique_until, p_now + v_job.unique_seconds, p_now
            );
            if v_holder = v_job.id then  -- another sender of the same job has just stored it
                v_known := v_known || to_jsonb(v_job.id);
                continue;
            elsif v_holder is not null then
                v_standing := v_standing || jsonb_build_object(v_job.id::text, v_holder);
                continue;
            end if;
        end if;
        insert into penstock.sent (id, jobs, lane, at)
        values (v_job.id, 1, v_job.lane, case when v_job.enqueued_at is null then p_now end)
            on conflict do nothing;
        if not found then  -- the same; without an error, which would abort a caller's transaction
            v_known := v_known || to_jsonb(v_job.id);
            delete from penstock.unique_key u where u.key = v_job.unique_key and u.job = v_job.id;
            continue;
        end if;
        -- The time of an id may be slightly ahead of p_now: a job without run_at is due now.
        v_run_at := coalesce(v_job.run_at, least(v_job.enqueued_at, p_now), p_now);
        v_state := coalesce(v_job.state, 'ready');
        v_minute := case when v_run_at > p_now and v_state = 'ready' then floor(v_run_at / 60) else 0 end;
        insert into penstock.job (
            id, lane, state, run_at, minute, enqueued_at, at_most_once, key, unique_key,
            unique_until, unique_seconds, expires_at, tags, search, body
        ) values (
            v_job.id, v_job.lane, v_state, v_run_at, v_minute, coalesce(v_job.enqueued_at, p_now),
            v_job.at_most_once, v_job.key, v_job.unique_key, v_job.unique_until,
            v_job.unique_seconds, v_job.expires_at, v_job.tags, v_job.search,
            convert_to(v_job.body, 'UTF8')
        );
        if v_job.names is not null then
            insert into penstock.tag (name, value, job)
            select distinct n.pair ->> 0, n.pair ->> 1, v_job.id
              from jsonb_array_elements(v_job.names) as n (pair);
            -- The history of a detached job begins when it is queued.
            if v_job.names @> '[["detached", "yes"]]' then
                insert into penstock.history (
                    kind, at, job, lane, attempt, state, key, enqueued_at, run_at, tags, data
                ) values (
                    'event', p_now, v_job.id, v_job.lane, 0, v_state, v_job.key,
                    coalesce(v_job.enqueued_at, p_now), v_run_at, v_job.tags,
                    convert_to('{"name":"queued","value":{}}', 'UTF8')
                );
            end if;
        end if;
        v_lanes := v_lanes || v_job.lane;
        v_states := v_states || v_state;
        v_minutes := v_minutes || v_minute;
    end loop;
    insert into penstock.tally (lane, state, minute, jobs)
    select t.lane, t.state, t.minute, count(*)
      from unnest(v_lanes, v_states, v_minutes) as t (lane, state, minute)
     group by t.lane, t.state, t.minute;
    return jsonb_build_object('known', v_known, 'standing', v_standing);
end
$$;

-- Take a unique key that is free or has expired: null; else the job that holds it. Its row is read
-- without a lock: that would last until the end of a caller's transaction, and the settlement of the
-- job that holds the key would wait for it.
create or replace function penstock.take_unique(
    p_key text,
    p_job uuid,
    p_until text,
    p_expires_at double precision,
    p_now double precision
) returns uuid
language plpgsql
as $$
declare
    v_held record;
begin
    loop
        select u.job, u.expires_at <= p_now as over into v_held
          from penstock.unique_key u
         where u.key = p_key;
        if not found then
            insert into penstock.unique_key (key, job, until, expires_at)
            values (p_key, p_job, p_until, p_expires_at)
                on conflict do nothing;
        elsif v_held.over then
            update penstock.unique_key u
               set job = p_job, until = p_until, expires_at = p_expires_at
             where u.key = p_key and u.expires_at <= p_now;
        else
            return v_held.job;
        end if;
        if found then
            return null;
        end if;
        -- Another transaction took it meanwhile, and has committed.
    end loop;
end
$$;
