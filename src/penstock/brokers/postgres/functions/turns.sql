-- Pick jobs in a lane whose queue is handed out by key: first one job of each key, round robin, then
-- more of each. Answers rows with a key in the order of their turns (`ids`, locked), rows without a key
-- (`loose`), and how many jobs of those and of parcels to take together (`plain`): all jobs without a
-- key share one turn. Keys go by their hash, as in the index job_turn. A session remembers whose turn
-- was last and goes on after it. Each step is one lookup in the index, however many jobs a key has;
-- after 1,000 keys that have nothing to give it stops, and the next claim goes on there, after half a
-- second at the latest (`free_in`).
create or replace function penstock.turns(
    p_lane bigint, p_policy text, p_want integer, p_floor uuid, p_guess integer,
    p_now double precision, p_lease_time double precision,
    out ids uuid[], out loose uuid[], out plain integer, out free_in double precision
)
language plpgsql
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
as $$
declare
    v_setting text := 'penstock.turn_' || replace(p_lane::text, '-', 'm');
    v_lowest constant bigint := -9223372036854775808;
    v_start bigint := coalesce(nullif(current_setting(v_setting, true), '')::bigint,
                               ((random() * 2 - 1) * 9e18)::bigint);
    v_turn bigint := v_start;
    v_last_turn bigint;
    v_next record;
    v_wrapped boolean := false;
    v_no_key_done boolean := false;  -- jobs without a key had their turn
    v_keys_read integer := 0;
    v_in_parcels integer;
    v_queue text;
    v_lanes bigint[];
    v_held_keys text[];  -- keys that are paused or blocked
    v_tag_rules boolean;
    v_key_limits boolean;  -- some limit counts each key on its own
    v_room record;
    v_share integer;
    v_taken integer;
    -- Keys that may have more jobs: where each was read to, and how many more of it may start.
    v_keys bigint[] := '{}';
    v_read_to double precision[] := '{}';
    v_read_ids uuid[] := '{}';
    v_room_left integer[] := '{}';
    v_batch record;
    v_head uuid;
    v_most integer;
begin
    ids := '{}';
    loose := '{}';
    plain := 0;
    select l.queue into v_queue from penstock.lane l where l.hash = p_lane;
    v_lanes := array(select l.hash from penstock.lane l where l.queue = v_queue);
    v_tag_rules := exists (select 1 from penstock.rule r where r.kind in ('block', 'pause') and r.tag <> '');
    v_key_limits := exists (select 1 from penstock.rule r where r.kind = 'limit' and r.per_key);
    v_held_keys := penstock.paused_keys(p_lane, p_now);
    select coalesce(sum(p.jobs), 0) into v_in_parcels
      from (select parcel.jobs from penstock.parcel
             where parcel.lane = p_lane and parcel.id >= p_floor order by parcel.id limit p_guess) p;
    if p_policy = 'batch' then  -- begin with the key of the job that was due first
        select coalesce(hashtextextended(nullif(j.key, ''), 0), 0) - 1 into v_start
          from penstock.job j
         where j.lane = p_lane
           and j.state = 'ready'
           and j.run_at <= p_now
         order by j.run_at, j.id
         limit 1;
        v_start := coalesce(v_start, v_lowest);
        v_turn := v_start;
    end if;
    -- One job of each key.
    while cardinality(ids) + plain < p_want loop
        select coalesce(hashtextextended(nullif(j.key, ''), 0), 0) as turn, j.key, j.run_at into v_next
          from penstock.job j
         where j.lane = p_lane
           and j.state = 'ready'
           and coalesce(hashtextextended(nullif(j.key, ''), 0), 0) > v_turn
         order by coalesce(hashtextextended(nullif(j.key, ''), 0), 0), j.run_at, j.id
         limit 1;
        if v_in_parcels > 0 and not v_no_key_done and v_turn < 0 and coalesce(v_next.turn > 0, true) then
            select 0::bigint as turn, null::text as key, p_now as run_at into v_next;  -- there are only parcels
        end if;
        if v_next.turn is null or (v_wrapped and v_next.turn > v_start) then
            exit when v_wrapped;
            v_wrapped := true;
            v_turn := v_lowest;
            continue;
        end if;
        v_turn := v_next.turn;
        v_keys_read := v_keys_read + 1;
        if v_keys_read - cardinality(ids) - plain > 1000 then
            v_last_turn := v_turn;
            free_in := 0.5;
            exit;
        end if;
        v_no_key_done := v_no_key_done or v_turn = 0;
        continue when v_next.run_at > p_now or v_next.key = any(v_held_keys);
        v_most := p_want;
        if v_key_limits and v_next.key <> '' then
            select * into v_room from penstock.room(p_lane, p_want, v_next.key, p_now, p_lease_time);
            v_most := v_room.jobs;
            if v_most <= 0 then
                free_in := least(free_in, v_room.free_in);
                continue;
            end if;
        end if;
        if p_policy <> 'fair' and v_turn <> 0 then
            v_head := penstock.head_of(v_lanes, p_lane, v_turn, v_queue, p_policy = 'wait', v_tag_rules, p_now);
            if v_head is not null then
                v_most := least(v_most, p_want - cardinality(ids) - plain);
                ids := ids || case
                    when p_policy = 'batch'
                    then penstock.batch_after(v_lanes, p_lane, v_turn, v_head, v_most, v_tag_rules, p_now)
                    else array[v_head]
                end;
                v_last_turn := v_turn;
            end if;
            continue;
        end if;
        v_batch := penstock.line_rows(p_lane, v_turn, 1, '-infinity', null, v_tag_rules, p_now);
        v_taken := cardinality(v_batch.ids);
        if v_turn = 0 then
            loose := v_batch.ids;
            plain := least(1, v_taken + v_in_parcels);
            v_taken := plain;
        else
            ids := ids || v_batch.ids;
        end if;
        if v_taken > 0 then
            v_last_turn := v_turn;
            v_keys := v_keys || v_turn;
            v_read_to := v_read_to || coalesce(v_batch.run_at, '-infinity');
            v_read_ids := v_read_ids || v_batch.id;
            v_room_left := v_room_left || (v_most - v_taken);
        end if;
    end loop;
    if v_last_turn is not null then
        perform set_config(v_setting, v_last_turn::text, false);
    end if;
    -- Then as many of each key, until there are enough or none are left.
    while cardinality(v_keys) > 0 and cardinality(ids) + plain < p_want loop
        v_share := greatest(1, (p_want - cardinality(ids) - plain) / cardinality(v_keys));
        for i in reverse cardinality(v_keys) .. 1 loop
            v_most := least(v_share, v_room_left[i], p_want - cardinality(ids) - plain);
            exit when cardinality(ids) + plain >= p_want;
            v_taken := 0;
            if v_most > 0 then
                v_batch := penstock.line_rows(p_lane, v_keys[i], v_most, v_read_to[i], v_read_ids[i], v_tag_rules, p_now);
                v_taken := cardinality(v_batch.ids);
                if v_taken > 0 then
                    v_read_to[i] := v_batch.run_at;
                    v_read_ids[i] := v_batch.id;
                end if;
                if v_keys[i] = 0 then
                    loose := loose || v_batch.ids;
                    v_taken := least(plain + v_most, cardinality(loose) + v_in_parcels) - plain;
                    plain := plain + v_taken;
                else
                    ids := ids || v_batch.ids;
                end if;
                v_room_left[i] := v_room_left[i] - v_taken;
            end if;
            if v_taken = 0 then
                v_keys := v_keys[:i - 1] || v_keys[i + 1:];
                v_read_to := v_read_to[:i - 1] || v_read_to[i + 1:];
                v_read_ids := v_read_ids[:i - 1] || v_read_ids[i + 1:];
                v_room_left := v_room_left[:i - 1] || v_room_left[i + 1:];
            end if;
        end loop;
    end loop;
end
$$;

-- Due rows of one key after (p_at, p_after), locked, and where the last of them is. Rows that are locked
-- by another claim are skipped: that claim takes them.
create or replace function penstock.line_rows(
    p_lane bigint, p_turn bigint, p_limit integer, p_at double precision, p_after uuid,
    p_ruled boolean, p_now double precision,
    out ids uuid[], out run_at double precision, out id uuid
)
language plpgsql
as $$
begin
    select coalesce(array_agg(t.id order by t.run_at, t.id), '{}'), max(t.run_at),
           (array_agg(t.id order by t.run_at desc, t.id desc))[1]
      into ids, run_at, id
      from (
        select j.id, j.run_at
          from penstock.job j
         where j.lane = p_lane
           and j.state = 'ready'
           and coalesce(hashtextextended(nullif(j.key, ''), 0), 0) = p_turn
           and j.run_at <= p_now
           and (j.run_at, j.id) > (p_at, coalesce(p_after, '00000000-0000-0000-0000-000000000000'))
           and (j.expires_at is null or j.expires_at > p_now)
           and (not p_ruled or not penstock.kept_by_tag(j.id, j.lane, j.key, p_now))
         order by j.run_at, j.id
         limit p_limit
           for update skip locked
      ) t;
end
$$;

-- The first ready job of a key in this lane, locked, if it is due and no job of the key comes before it
-- in any lane of its queue; else null. An advisory lock on the key, until the commit: two claims may
-- see different first jobs, because one was committed late, and would both take theirs. Checked again
-- under the lock, for what was committed before the lock was given.
create or replace function penstock.head_of(
    p_lanes bigint[], p_lane bigint, p_turn bigint, p_queue text, p_wait boolean, p_ruled boolean,
    p_now double precision
) returns uuid
language plpgsql
as $$
declare
    v_head record;
begin
    select j.id, j.key, j.run_at, j.expires_at into v_head
      from penstock.job j
     where j.id = penstock.first_in_line(p_lane, p_turn, 'ready');
    if not found or v_head.run_at > p_now or v_head.expires_at <= p_now
       or (p_ruled and penstock.kept_by_tag(v_head.id, p_lane, v_head.key, p_now))
       or penstock.is_behind(p_lanes, p_turn, v_head.id, p_wait)
       or not pg_try_advisory_xact_lock(485528422, hashtext(p_queue || E'\x01' || p_turn::text))
    then
        return null;
    end if;
    perform 1 from penstock.job j where j.id = v_head.id and j.state = 'ready' for update skip locked;
    if not found or penstock.is_behind(p_lanes, p_turn, v_head.id, p_wait) then
        return null;
    end if;
    return v_head.id;
end
$$;

-- The first job of a key, and those that go with it in a batch, locked: the next by id, as long as each
-- is due and no job of the key comes before it in another lane. One that went wrong before is alone.
create or replace function penstock.batch_after(
    p_lanes bigint[], p_lane bigint, p_turn bigint, p_head uuid, p_limit integer, p_ruled boolean,
    p_now double precision
) returns uuid[]
language plpgsql
as $$
declare
    v_ids uuid[] := array[p_head];
    v_next record;
    v_elsewhere uuid := (
        select f.id
          from unnest(p_lanes) as l (hash),
               lateral (select penstock.first_in_line(l.hash, p_turn, 'ready') as id offset 0) f
         where l.hash <> p_lane
           and f.id is not null
         order by f.id
         limit 1
    );
begin
    if exists (select 1 from penstock.job j where j.id = p_head and (j.failures > 0 or j.lapses > 0)) then
        return v_ids;
    end if;
    for v_next in
        select j.id, j.key, j.run_at, j.expires_at, j.failures, j.lapses
          from penstock.job j
         where j.lane = p_lane
           and j.key is not null
           and j.state in ('failed', 'ready', 'running')
           and j.state between 'ready' and 'ready'
           and coalesce(hashtextextended(nullif(j.key, ''), 0), 0) = p_turn
           and j.id > p_head
         order by j.state, j.id
         limit p_limit - 1
    loop
        exit when v_next.run_at > p_now or v_next.expires_at <= p_now or v_next.id > v_elsewhere
               or v_next.failures > 0 or v_next.lapses > 0
               or (p_ruled and penstock.kept_by_tag(v_next.id, p_lane, v_next.key, p_now));
        perform 1 from penstock.job j where j.id = v_next.id and j.state = 'ready' for update skip locked;
        exit when not found;
        v_ids := v_ids || v_next.id;
    end loop;
    return v_ids;
end
$$;

-- The first job of a key in a lane that is in this state; null if there is none. The state is compared
-- as a range and ordered by: only the index job_order has that order, so the planner takes it, whatever
-- the statistics say, and does not scan by id or through all failed jobs.
create or replace function penstock.first_in_line(p_lane bigint, p_turn bigint, p_state text)
returns uuid
language plpgsql stable
as $$
begin
    return (
        select j.id
          from penstock.job j
         where j.lane = p_lane
           and j.key is not null
           and j.state in ('failed', 'ready', 'running')
           and j.state between p_state and p_state
           and coalesce(hashtextextended(nullif(j.key, ''), 0), 0) = p_turn
         order by j.state, j.id
         limit 1
    );
end
$$;

-- Whether a job of the key runs, or one that comes before this one is ready (or failed, where that
-- holds the key back). Lane by lane, so that each is one lookup in the index.
create or replace function penstock.is_behind(p_lanes bigint[], p_turn bigint, p_id uuid, p_wait boolean)
returns boolean
language plpgsql
as $$
begin
    return exists (
        select 1
          from unnest(p_lanes) as l (hash)
         where penstock.first_in_line(l.hash, p_turn, 'running') is not null
            or penstock.first_in_line(l.hash, p_turn, 'ready') < p_id
            or (p_wait and penstock.first_in_line(l.hash, p_turn, 'failed') < p_id)
    );
end
$$;

-- The keys that are paused or blocked in a lane.
create or replace function penstock.paused_keys(p_lane bigint, p_now double precision) returns text[]
language sql stable
as $$
    select array(
        select r.key
          from penstock.lane l
          join penstock.rule r
            on r.kind in ('block', 'pause')
           and r.key <> ''
           and r.tag = ''
           and r.queue in ('', l.queue)
           and r.task in ('', l.task)
           and r.version in (-1, l.version)
         where l.hash = p_lane
           and (r.until is null or r.until > p_now)
    )
$$;

-- Whether a pause or block by tag covers a job.
create or replace function penstock.kept_by_tag(p_id uuid, p_lane bigint, p_key text, p_now double precision)
returns boolean
language plpgsql
as $$
begin
    return exists (
        select 1
          from penstock.lane l
          join penstock.rule r
            on r.kind in ('block', 'pause')
           and r.tag <> ''
           and r.queue in ('', l.queue)
           and r.task in ('', l.task)
           and r.version in (-1, l.version)
           and r.key in ('', p_key)
         where l.hash = p_lane
           and exists (select 1 from penstock.tag t
                        where t.name = r.tag and t.value = r.tag_value and t.job = p_id)
           and (r.until is null or r.until > p_now)
    );
end
$$;

-- The policy of a lane's queue (fair, wait, skip or batch); null: it is not handed out by key.
create or replace function penstock.policy_of(p_lane bigint) returns text
language sql stable
as $$
    select r.policy
      from penstock.lane l
      join penstock.rule r on r.kind = 'order' and r.queue = l.queue
     where l.hash = p_lane
$$;
