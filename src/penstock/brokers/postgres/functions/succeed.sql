-- Packed jobs of one lease succeeded: mark them as settled and write their history. Answers a byte for
-- each job, 1 if this worker still held it; for the others nothing is written.
-- The settings keep a cached plan, made when a table was empty, from scanning a full one.
create or replace function penstock.succeed(
    p_worker text,
    p_lease bigint,
    p_claimed_at double precision,
    p_places integer[],
    p_ids uuid[],
    p_ended double precision[],
    p_enqueued double precision[],
    p_started double precision[],
    p_bodies bytea[],
    p_results bytea[],
    p_keep_until double precision[],
    p_relaxed boolean  -- the commit need not wait for the disk
) returns bytea
language plpgsql
set enable_seqscan = off
set jit = off
set lock_timeout = '4s'
as $$
declare
    v_jobs integer := array_length(p_ids, 1);
    v_accepted bytea := decode(repeat('01', v_jobs), 'hex');
    v_marks bytea;
    v_lane bigint;
    v_attempt integer;
    v_count integer := 0;
begin
    if p_relaxed then
        perform set_config('synchronous_commit', 'off', true);
    else
        perform set_config('penstock.settled', 'yes', true);
    end if;
    -- Mostly all jobs of the lease end together. Worker and time are compared as well: after a crash of
    -- the server, two leases may have got the same id.
    delete from penstock.lease l
     where l.id = p_lease and l.worker = p_worker and l.claimed_at = p_claimed_at
       and l.marks = decode(repeat('00', v_jobs), 'hex')
    returning l.lane, l.attempt into v_lane, v_attempt;
    if found then
        v_count := v_jobs;
        insert into penstock.history (
            kind, at, job, lane, attempt, state, enqueued_at, started_at, worker, body, result, keep_until
        )
        select 'attempt', t.ended, t.job, v_lane, v_attempt, 'succeeded', t.enqueued, t.started, p_worker,
               t.body, t.result, t.keep_until
          from unnest(p_ids, p_ended, p_enqueued, p_started, p_bodies, p_results, p_keep_until)
               as t (job, ended, enqueued, started, body, result, keep_until);
    else
        select l.marks, l.lane, l.attempt into v_marks, v_lane, v_attempt
          from penstock.lease l
         where l.id = p_lease and l.worker = p_worker and l.claimed_at = p_claimed_at
           for update;
        if not found then
            return decode(repeat('00', v_jobs), 'hex');
        end if;
        for i in 1 .. v_jobs loop
            if get_byte(v_marks, p_places[i]) = 1 then
                v_accepted := set_byte(v_accepted, i - 1, 0);
            else
                v_marks := set_byte(v_marks, p_places[i], 1);
                v_count := v_count + 1;
            end if;
        end loop;
        if v_count = 0 then
            return v_accepted;
        end if;
        if v_marks = decode(repeat('01', length(v_marks)), 'hex') then
            delete from penstock.lease l where l.id = p_lease;
        else
            update penstock.lease l set marks = v_marks where l.id = p_lease;
        end if;
        insert into penstock.history (
            kind, at, job, lane, attempt, state, enqueued_at, started_at, worker, body, result, keep_until
        )
        select 'attempt', t.ended, t.job, v_lane, v_attempt, 'succeeded', t.enqueued, t.started, p_worker,
               t.body, t.result, t.keep_until
          from unnest(p_ids, p_ended, p_enqueued, p_started, p_bodies, p_results, p_keep_until)
               with ordinality
               as t (job, ended, enqueued, started, body, result, keep_until, place)
         where get_byte(v_accepted, t.place::integer - 1) = 1;
    end if;
    insert into penstock.tally (lane, state, minute, jobs) values (v_lane, 'running', 0, -v_count);
    return v_accepted;
end
$$;

-- Jobs with rows of their own succeeded: move them to the history. Answers the ids of those that this
-- attempt still held.
create or replace function penstock.succeed_rows(
    p_ids uuid[],
    p_attempts integer[],
    p_claimed_at double precision[],  -- fences as well: a claim lost in a crash may be made again
    p_ended double precision[],
    p_started double precision[],
    p_bodies bytea[],      -- null: not to be kept
    p_results bytea[],
    p_keep_until double precision[]
) returns uuid[]
language plpgsql
set enable_seqscan = off
set jit = off
set lock_timeout = '4s'
as $$
declare
    v_held uuid[];
    v_done uuid[];
begin
    perform set_config('penstock.settled', 'yes', true);
    -- Locked in id order, so that two settlements cannot deadlock. By id alone: with further conditions,
    -- a plan made for an empty table would use the index of running jobs and read all of them.
    with locked as materialized (
        select j.id, j.attempt, j.claimed_at, j.state
          from penstock.job j
         where j.id = any(p_ids)
         order by j.id
           for update
    )
    select array_agg(l.id) into v_held
      from locked l
      join unnest(p_ids, p_attempts, p_claimed_at) as t (id, attempt, claimed_at)
        on l.id = t.id and l.attempt = t.attempt and l.claimed_at = t.claimed_at
     where l.state = 'running';
    with gone as (
        delete from penstock.job j
         using unnest(p_ids, p_attempts, p_ended, p_started, p_bodies, p_results, p_keep_until)
               as t (id, attempt, ended, started, body, result, keep_until)
         where j.id = any(v_held) and j.id = t.id and j.attempt = t.attempt
        returning j.*, t.ended, t.started, t.body as kept, t.result, t.keep_until as kept_until
    ),
    freed as (
        -- Skip a key that another job is just taking over because it expired.
        delete from penstock.unique_key u
         where u.key in (
            select k.key
              from penstock.unique_key k
              join gone on k.key = gone.unique_key and k.job = gone.id
             where k.until = 'ended'
               for update of k skip locked
         )
    ),
    counted as (
        insert into penstock.tally (lane, state, minute, jobs)
        select gone.lane, 'running', 0, -count(*) from gone group by gone.lane
    ),
    written as (
        insert into penstock.history (
            kind, at, job, lane, attempt, failures, lapses, repeats, state, key, enqueued_at, run_at,
            started_at, worker, tags, body, result, keep_until
        )
        select 'attempt', gone.ended, gone.id, gone.lane, gone.attempt, gone.failures, gone.lapses,
               gone.repeats, 'succeeded', gone.key, gone.enqueued_at, gone.run_at,
               coalesce(gone.started, gone.claimed_at), gone.worker, gone.tags, gone.kept, gone.result,
               gone.kept_until
          from gone
    )
    select array_agg(gone.id) into v_done from gone;
    return coalesce(v_done, '{}');
end
$$;
