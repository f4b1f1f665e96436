-- Store packed jobs, all or none. Answers the first ids of parcels that hold ids which were sent
-- before: then nothing was written, and the caller sends what is left of them. Two senders of the
-- same id at the same moment meet at the key of penstock.sent, which is written first.
-- The setting keeps a plan made for an empty table from scanning a full one.

create or replace function penstock.check_pruned(p_oldest uuid) returns void
language plpgsql
as $$
begin
    if p_oldest < (
        select penstock.first_id(m.value::double precision)
          from penstock.meta m
         where m.name = 'pruned_before'
    ) then
        raise exception 'id % is older than what this store remembers', p_oldest
              using errcode = 'PN001';
    end if;
end
$$;

-- Parcels of one run of ids may be cut differently when they are sent again: who stores some of a
-- run waits for others who do, so that what they stored is seen. Released by the commit.
--
-- A lock per run. Very many would fill the server's table of locks: then one for all runs of the
-- same second (of 512, which come again), which whoever locks a run shares. Runs of other seconds
-- do not wait. Callers that are joined keep what they share until they end: whoever waits for them
-- lets go of all it has after a moment, so that nobody has to wait behind it, and tries again.
create or replace function penstock.lock_runs(p_runs uuid[]) returns void
language plpgsql
as $$
declare
    v_number bigint;
    v_run uuid;
    v_runs uuid[] := array(select distinct r.run from unnest(p_runs) as r (run) order by r.run);
    v_seconds bigint[] := array(
        select distinct penstock.second_lock(r.run) as number from unnest(v_runs) as r (run) order by number
    );
    v_patience text := current_setting('lock_timeout');
begin
    if cardinality(v_runs) <= 1000 then
        foreach v_number in array v_seconds loop
            perform pg_advisory_xact_lock_shared(v_number);
        end loop;
        foreach v_run in array v_runs loop
            perform pg_advisory_xact_lock(uuid_hash_extended(v_run, 4855284203));
        end loop;
        return;
    end if;
    for v_try in 1 .. 30 loop
        begin
            perform set_config('lock_timeout', '100ms', true);
            foreach v_number in array v_seconds loop
                perform pg_advisory_xact_lock(v_number);
            end loop;
            perform set_config('lock_timeout', v_patience, true);
            return;
        exception when lock_not_available then
            if v_try = 30 then
                raise;
            end if;
        end;
        perform pg_sleep(0.1);
    end loop;
end
$$;

-- The number of the lock for all runs of ids that were made in the same second.
create or replace function penstock.second_lock(p_run uuid) returns bigint
language sql immutable strict parallel safe
as $$
    select 4855284210 + ((get_byte(uuid_send(p_run), 3) & 7) << 6) + (get_byte(uuid_send(p_run), 4) >> 2)
$$;

create or replace function penstock.enqueue_parcel(
    p_id uuid,
    p_run uuid,          -- the first id that its run of ids could have
    p_last uuid,         -- its last id
    p_lane bigint,
    p_jobs integer,
    p_lengths bytea,
    p_bodies bytea,
    p_relaxed boolean
) returns uuid[]
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
set lock_timeout = '2s'
as $$
declare
    v_id uuid;
    v_jobs integer;
begin
    if p_id < (
        select penstock.first_id(m.value::double precision)
          from penstock.meta m
         where m.name = 'pruned_before'
    ) then
        perform penstock.check_pruned(p_id);  -- which refuses it
    end if;
    if p_jobs > 1 or p_id <> p_run then  -- else only the same id could be in its way
        perform pg_advisory_xact_lock_shared(penstock.second_lock(p_run));
        perform pg_advisory_xact_lock(uuid_hash_extended(p_run, 4855284203));
        select s.id, s.jobs into v_id, v_jobs
          from penstock.sent s
         where s.id between p_run and p_last
         order by s.id desc
         limit 1;
        if found and penstock.id_after(v_id, v_jobs - 1) >= p_id then
            return array[p_id];
        end if;
    end if;
    -- One statement: each costs the server ten microseconds to start.
    with remembered as (
        insert into penstock.sent (id, jobs, lane) values (p_id, p_jobs, p_lane)
    ),
    counted as (
        insert into penstock.tally (lane, state, minute, jobs) values (p_lane, 'ready', 0, p_jobs)
    )
    insert into penstock.parcel (lane, id, jobs, lengths, bodies)
    values (p_lane, p_id, p_jobs, p_lengths, p_bodies);
    if p_relaxed then
        perform set_config('synchronous_commit', 'off', true);
    end if;
    return '{}';
end
$$;

create or replace function penstock.enqueue_parcels(
    p_ids uuid[],
    p_runs uuid[],
    p_lasts uuid[],
    p_lanes bigint[],
    p_jobs integer[],
    p_lengths bytea[],
    p_bodies bytea[],
    p_relaxed boolean
) returns uuid[]
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
set lock_timeout = '2s'
as $$
declare
    v_known uuid[] := '{}';
    v_id uuid;
    v_jobs integer;
begin
    perform penstock.check_pruned((select t.id from unnest(p_ids) as t (id) order by t.id limit 1));
    perform penstock.lock_runs(array(
        select t.run
          from unnest(p_ids, p_runs, p_jobs) as t (id, run, jobs)
         where t.jobs > 1 or t.id <> t.run  -- else only the same id could be in its way
    ));
    -- One by one: joined, the planner reads every partition for a handful of ids.
    for i in 1 .. array_length(p_ids, 1) loop
        select s.id, s.jobs into v_id, v_jobs
          from penstock.sent s
         where s.id between p_runs[i] and p_lasts[i]
         order by s.id desc
         limit 1;
        if found and penstock.id_after(v_id, v_jobs - 1) >= p_ids[i] then
            v_known := v_known || p_ids[i];
        end if;
    end loop;
    if v_known <> '{}' then
        return v_known;
    end if;
    insert into penstock.sent (id, jobs, lane)
    select t.id, t.jobs, t.lane from unnest(p_ids, p_jobs, p_lanes) as t (id, jobs, lane);
    insert into penstock.parcel (lane, id, jobs, lengths, bodies)
    select t.lane, t.id, t.jobs, t.lengths, t.bodies
      from unnest(p_lanes, p_ids, p_jobs, p_lengths, p_bodies) as t (lane, id, jobs, lengths, bodies);
    insert into penstock.tally (lane, state, minute, jobs)
    select t.lane, 'ready', 0, sum(t.jobs)
      from unnest(p_lanes, p_jobs) as t (lane, jobs)
     group by t.lane;
    if p_relaxed then
        perform set_config('synchronous_commit', 'off', true);
    end if;
    return v_known;
end
$$;
