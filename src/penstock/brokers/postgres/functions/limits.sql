-- Limits: how many jobs of a lane may start now, of one key or (p_key null) in all. What runs is counted
-- by leases and rows, those of lapsed workers until they are recovered; rates by the starts of the last
-- window. A claim counts under the limits' locks (see lock_limits), a look without them. `free_in`: if
-- none may start, the seconds until some may; infinity, if a job has to end first.
create or replace function penstock.room(
    p_lane bigint, p_want integer, p_key text, p_now double precision, p_lease_time double precision,
    out jobs integer, out free_in double precision
)
language plpgsql
as $$
declare
    v_limit record;
    v_used bigint;
    v_window double precision;
    v_left integer;
    v_free double precision;
begin
    jobs := p_want;
    free_in := 0;
    for v_limit in
        select r.queue, r.task, r.per_key, r.running, r.rate_jobs, r.rate_seconds
          from penstock.lane l
          join penstock.rule r
            on r.kind = 'limit'
           and r.queue in ('', l.queue)
           and r.task in ('', l.task)
         where l.hash = p_lane
           and r.per_key = (p_key is not null)
           and (r.until is null or r.until > p_now)
    loop
        if v_limit.running is not null then
            v_left := greatest(0, v_limit.running - penstock.running_under(v_limit.queue, v_limit.task, p_key));
            if v_left < jobs then
                jobs := v_left;
            end if;
            if v_left = 0 then
                free_in := 'infinity';
            end if;
        end if;
        if v_limit.rate_jobs is not null then
            v_window := v_limit.rate_seconds + penstock.slack_of(v_limit.rate_seconds);
            select coalesce(sum(s.jobs), 0) into v_used
              from penstock.start s
             where s.queue = v_limit.queue and s.task = v_limit.task
               and s.per_key = v_limit.per_key and s.key = coalesce(p_key, '')
               and s.at > p_lease_time - v_window;
            v_left := greatest(0, v_limit.rate_jobs - v_used);
            if v_left < jobs then
                jobs := v_left;
            end if;
            if v_left = 0 then
                select min(t.at) + v_window - p_lease_time into v_free
                  from (select s.at, sum(s.jobs) over (order by s.at, s.id) as gone
                          from penstock.start s
                         where s.queue = v_limit.queue and s.task = v_limit.task
                           and s.per_key = v_limit.per_key and s.key = coalesce(p_key, '')
                           and s.at > p_lease_time - v_window) t
                 where v_used - t.gone < v_limit.rate_jobs;
                free_in := greatest(free_in, least(v_free, v_window));
            end if;
        end if;
    end loop;
end
$$;

-- As slack_of in rules/limits.py: how many seconds after its claim a job may start. A claim counts for the
-- window and this much longer, so that the starts themselves never exceed the rate in any window.
create or replace function penstock.slack_of(p_seconds double precision) returns double precision
language sql immutable
as $$
    select least(1.0, greatest(0.05, p_seconds / 10))
$$;

-- How many jobs of a limit's queue and task (and of one key) run. penstock.lease has a row per claim in
-- flight; a byte of `marks` that is 1 is a settled job, so those are subtracted.
create or replace function penstock.running_under(p_queue text, p_task text, p_key text) returns integer
language sql stable
as $$
    select ((select case when p_key is null then coalesce(sum(
                        length(l.marks)
                        - (2 * length(l.marks) - length(replace(encode(l.marks, 'hex'), '01', ''))) / 2
                    ), 0) else 0 end
               from penstock.lease l
              where exists (select 1 from penstock.lane n
                             where n.hash = l.lane and p_queue in ('', n.queue) and p_task in ('', n.task)))
          + (select count(*)
               from penstock.job j
              where j.state = 'running'
                and (p_key is null or j.key = p_key)
                and exists (select 1 from penstock.lane n
                             where n.hash = j.lane and p_queue in ('', n.queue) and p_task in ('', n.task)))
           )::integer
$$;

-- Lock each limit that covers these lanes until the commit: one claim at a time counts under it. In the
-- order of lock numbers, so that two claims cannot deadlock. Answers whether there are any.
create or replace function penstock.lock_limits(
    p_lanes bigint[], p_now double precision, p_lease_time double precision
) returns boolean
language plpgsql
as $$
declare
    v_number integer;
    v_found boolean := false;
begin
    for v_number in
        select distinct hashtext(r.queue || E'\x01' || r.task || E'\x01' || r.per_key::text) as number
          from penstock.rule r
         where r.kind = 'limit'
           and (r.until is null or r.until > p_now)
           and exists (select 1 from penstock.lane l
                        where l.hash = any(p_lanes) and r.queue in ('', l.queue) and r.task in ('', l.task))
         order by number
    loop
        perform pg_advisory_xact_lock(485528420, v_number);
        v_found := true;
    end loop;
    if v_found then
        -- Starts in the future, from before a clock was set back: else they would count until then.
        update penstock.start s set at = p_lease_time where s.at > p_lease_time + 1;
    end if;
    return v_found;
end
$$;

-- Record that jobs of a lane start now, for each rate that covers it, and delete starts that no longer
-- count. Answers how many seconds after its claim a job may start; null: no rate covers the lane.
create or replace function penstock.put_starts(
    p_lane bigint, p_jobs integer, p_rows uuid[], p_now double precision, p_lease_time double precision
) returns double precision
language plpgsql
as $$
declare
    v_limit record;
    v_within double precision;
begin
    for v_limit in
        select r.queue, r.task, r.per_key, r.rate_seconds
          from penstock.lane l
          join penstock.rule r
            on r.kind = 'limit'
           and r.queue in ('', l.queue)
           and r.task in ('', l.task)
         where l.hash = p_lane
           and r.rate_jobs is not null
           and (r.until is null or r.until > p_now)
    loop
        v_within := least(v_within, penstock.slack_of(v_limit.rate_seconds));
        if v_limit.per_key then
            insert into penstock.start (queue, task, per_key, key, at, made_at, jobs)
            select v_limit.queue, v_limit.task, true, j.key, p_lease_time, p_now, count(*)
              from penstock.job j
             where j.id = any(p_rows) and j.key is not null
             group by j.key;
        else
            insert into penstock.start (queue, task, per_key, key, at, made_at, jobs)
            values (v_limit.queue, v_limit.task, false, '', p_lease_time, p_now, p_jobs);
        end if;
        delete from penstock.start s
         where s.queue = v_limit.queue and s.task = v_limit.task and s.per_key = v_limit.per_key
           and (not v_limit.per_key
                or s.key in (select j.key from penstock.job j where j.id = any(p_rows)))
           and s.at <= p_lease_time - v_limit.rate_seconds - penstock.slack_of(v_limit.rate_seconds);
    end loop;
    return v_within;
end
$$;

-- Whether some rule covers a lane by key or tag: then its rows are picked one by one.
create or replace function penstock.picks(p_lane bigint, p_now double precision) returns boolean
language sql stable
as $$
    select exists (
        select 1
          from penstock.lane l
          join penstock.rule r
            on r.queue in ('', l.queue)
           and r.task in ('', l.task)
         where l.hash = p_lane
           and (r.kind = 'limit' and r.per_key or r.kind <> 'limit' and (r.key <> '' or r.tag <> ''))
           and (r.until is null or r.until > p_now)
    )
$$;

-- The first due rows of a lane that no rule holds back and whose keys have room under their limits; not
-- locked. One at a time: the next lookup skips all rows of a key that has just become full.
create or replace function penstock.picked(
    p_lane bigint, p_want integer, p_floor double precision, p_now double precision,
    p_lease_time double precision, out ids uuid[], out free_in double precision
)
language plpgsql
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
as $$
declare
    v_at double precision := p_floor;
    v_id uuid := '00000000-0000-0000-0000-000000000000';
    v_key text;
    v_room record;
    v_left jsonb := '{}';
    v_full text[] := '{}';
    v_tag_rules boolean;
begin
    ids := '{}';
    v_tag_rules := exists (select 1 from penstock.rule r where r.kind in ('block', 'pause') and r.tag <> '');
    v_full := penstock.paused_keys(p_lane, p_now);  -- a paused key has no room
    while cardinality(ids) < p_want loop
        select j.run_at, j.id, j.key into v_at, v_id, v_key
          from penstock.job j
         where j.lane = p_lane
           and j.state = 'ready'
           and j.run_at <= p_now
           and (j.run_at, j.id) > (v_at, v_id)
           and (j.expires_at is null or j.expires_at > p_now)
           and (j.key is null or j.key <> all(v_full))
           and (not v_tag_rules or not penstock.kept_by_tag(j.id, j.lane, j.key, p_now))
         order by j.run_at, j.id
         limit 1;
        exit when not found;
        if v_key is not null then
            if not v_left ? v_key then
                select * into v_room from penstock.room(p_lane, p_want, v_key, p_now, p_lease_time);
                v_left := v_left || jsonb_build_object(v_key, v_room.jobs);
                if v_room.jobs <= 0 then
                    free_in := least(free_in, v_room.free_in);
                    v_full := v_full || v_key;
                    continue;
                end if;
            end if;
            v_left := v_left || jsonb_build_object(v_key, (v_left ->> v_key)::integer - 1);
            if (v_left ->> v_key)::integer <= 0 then
                v_full := v_full || v_key;
            end if;
        end if;
        ids := ids || v_id;
    end loop;
end
$$;
