-- Store packed jobs, all or none. If some of their ids were sent before, nothing is written, and the
-- answer is the first ids of those parcels: the caller sends the rest. Of two senders of the same id at
-- the same moment, the second waits at the primary key of penstock.sent, which is written first.
-- The settings keep a cached plan, made when a table was empty, from scanning a full one.

-- Refuse ids that are older than what was pruned: whether they were sent before is not known any more.
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

-- Lock runs of ids until the commit. Sent again, the jobs of a run may be packed into other parcels, so
-- overlaps are not found by a unique key: senders of one run wait for each other, and see what the other
-- stored.
--
-- An advisory lock per run. More than 1,000 could fill the server's lock table: then one per second in
-- which the runs were made (modulo 512), which everyone who locks a single run of that second holds
-- shared. A transaction of a caller (enqueue_joined) may hold its share for long: whoever waits for it
-- releases all of its locks after 100 ms, so that others do not queue behind it, and tries again.
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
    v_lock_timeout text := current_setting('lock_timeout');
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
            perform set_config('lock_timeout', v_lock_timeout, true);
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

-- The number of the lock for all runs of ids of one second.
create or replace function penstock.second_lock(p_run uuid) returns bigint
language sql immutable strict parallel safe
as $$
    select 4855284210 + ((get_byte(uuid_send(p_run), 3) & 7) << 6) + (get_byte(uuid_send(p_run), 4) >> 2)
$$;

-- One parcel, without the arrays and the loop of enqueue_parcels.
create or replace function penstock.enqueue_parcel(
    p_id uuid,
    p_run uuid,          -- the first id of its run of ids
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
        perform penstock.check_pruned(p_id);  -- raises
    end if;
    if p_jobs > 1 or p_id <> p_run then  -- else only the same id can overlap, which is a unique key
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
    -- One statement instead of three: each has 10 us of overhead.
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

-- Many parcels, which may be of several lanes.
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
         where t.jobs > 1 or t.id <> t.run  -- else only the same id can overlap, which is a unique key
    ));
    -- One by one: for a join, the planner reads every partition.
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
