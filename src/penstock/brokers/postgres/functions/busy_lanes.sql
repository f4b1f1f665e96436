-- The lanes that have ready jobs, with their oldest parcel, their earliest row and, if that is due, the
-- next one that is not due yet: a row of the answer for each. In the row of a lane, `news` is the policy of
-- its queue, if that is handed out by key; in a row without a lane, the words that claim answers, too. A
-- skip scan from lane to lane: it costs by the number of lanes, not of jobs.
--
-- With p_lanes it looks only there, and only above the caller's floors: dead rows below them, which an
-- open snapshot keeps, cost nothing. What was committed late below a floor is found from the bottom.
create or replace function penstock.busy_lanes(
    p_now double precision,
    p_lease_time double precision,
    p_lanes bigint[],                -- null: all of them, from the bottom
    p_floors uuid[],
    p_row_floors double precision[]
) returns table (
    lane bigint, first uuid, jobs integer, run_at double precision, news text
)
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
set enable_sort = off
as $$
declare
    v_lane bigint;
    v_rules boolean := exists (select 1 from penstock.rule r where r.until is null or r.until > p_now);
    v_limits boolean := v_rules and exists (
        select 1 from penstock.rule r where r.kind = 'limit' and (r.until is null or r.until > p_now)
    );
    v_orders boolean := v_rules and exists (select 1 from penstock.rule r where r.kind = 'order');
    v_held_for double precision;
    v_free_in double precision;
begin
    for i in 1 .. coalesce(array_length(p_lanes, 1), 0) loop
        if v_rules then
            v_held_for := penstock.held(p_lanes[i], v_limits, p_now, p_lease_time);
            v_free_in := least(v_free_in, v_held_for);
            continue when v_held_for is not null;
        end if;
        lane := p_lanes[i];
        run_at := null;
        if v_orders then
            news := penstock.policy_of(lane);
        end if;
        select p.id, p.jobs into first, jobs
          from penstock.parcel p
         where p.lane = p_lanes[i] and p.id >= p_floors[i]
         order by p.id
         limit 1;
        if found then
            return next;
        end if;
        first := null;
        jobs := null;
        select j.run_at into run_at
          from penstock.job j
         where j.lane = p_lanes[i] and j.state = 'ready' and j.run_at >= p_row_floors[i]
         order by j.run_at
         limit 1;
        if found then
            return next;
            if run_at <= p_now then
                select j.run_at into run_at
                  from penstock.job j
                 where j.lane = p_lanes[i] and j.state = 'ready' and j.run_at > p_now
                 order by j.run_at
                 limit 1;
                if found then
                    return next;
                end if;
            end if;
        end if;
    end loop;
    if p_lanes is null then
        run_at := null;
        select p.lane, p.id, p.jobs into v_lane, first, jobs
          from penstock.parcel p where p.lane > penstock.lane_staged() order by p.lane, p.id limit 1;
        while v_lane is not null loop
            if v_rules then
                v_held_for := penstock.held(v_lane, v_limits, p_now, p_lease_time);
                v_free_in := least(v_free_in, v_held_for);
            end if;
            if v_held_for is null then
                lane := v_lane;
                if v_orders then
                    news := penstock.policy_of(lane);
                end if;
                return next;
            end if;
            select p.lane, p.id, p.jobs into v_lane, first, jobs
              from penstock.parcel p where p.lane > v_lane order by p.lane, p.id limit 1;
        end loop;
        first := null;
        jobs := null;
        select j.lane, j.run_at into v_lane, run_at
          from penstock.job j where j.state = 'ready' order by j.lane, j.run_at limit 1;
        while v_lane is not null loop
            if v_rules then
                v_held_for := penstock.held(v_lane, v_limits, p_now, p_lease_time);
                v_free_in := least(v_free_in, v_held_for);
            end if;
            if v_held_for is null then
                lane := v_lane;
                if v_orders then
                    news := penstock.policy_of(lane);
                end if;
                return next;
                if run_at <= p_now then
                    select j.run_at into run_at
                      from penstock.job j
                     where j.lane = v_lane and j.state = 'ready' and j.run_at > p_now
                     order by j.run_at
                     limit 1;
                    if found then
                        return next;
                    end if;
                end if;
            end if;
            select j.lane, j.run_at into v_lane, run_at
              from penstock.job j
             where j.lane > v_lane and j.state = 'ready' order by j.lane, j.run_at limit 1;
        end loop;
    end if;
    first := null;
    jobs := null;
    lane := null;
    run_at := null;
    news := penstock.news(p_now, p_lease_time);
    if p_lanes is null and news !~ 'lapsed' and penstock.stranded() then
        news := news || 'lapsed';
    end if;
    if v_limits and v_free_in is not null then
        news := news || ' limited';
    end if;
    if v_rules then
        v_free_in := least(v_free_in, (select min(r.until) - p_now from penstock.rule r where r.until > p_now));
    end if;
    if v_free_in < 'infinity' then
        news := news || ' free=' || v_free_in;
    end if;
    if news <> '' then
        return next;
    end if;
end
$$;

-- The words `expired` and `lapsed`, where they apply; see claim.
create or replace function penstock.news(p_now double precision, p_lease_time double precision)
returns text
language sql stable
as $$
    -- Ordered, and the callers have enable_sort off: that makes a plan for an empty table use the index
    -- of expires_at, and not read all ready jobs.
    select case when coalesce(
                    (select j.expires_at
                       from penstock.job j
                      where j.state = 'ready' and j.expires_at <= p_now
                      order by j.expires_at
                      limit 1),
                    (select j.expires_at
                       from penstock.job j
                      where j.state = 'waiting' and j.expires_at <= p_now
                      order by j.expires_at
                      limit 1)
                ) is not null
                then 'expired ' else '' end
        || case when exists (select 1 from penstock.worker w where w.gone = 0 and w.alive_until <= p_lease_time)
                then 'lapsed' else '' end
$$;

-- Whether some job is held by a worker that was given up: that happened while its claim was under way.
-- Reads a row per claim in flight and running row; each worker by a subquery, which uses the primary
-- key even with a plan for an empty table.
create or replace function penstock.stranded() returns boolean
language sql stable
as $$
    select exists (
               select 1
                 from penstock.lease l
                where coalesce((select w.gone from penstock.worker w where w.id = l.worker), 1) > 0
           )
        or exists (
               select 1
                 from penstock.job j
                where j.state = 'running'
                  and coalesce((select w.gone from penstock.worker w where w.id = j.worker), 1) > 0
           )
$$;

-- Up to 1,000 ready jobs whose time to start is over, locked.
create or replace function penstock.expired(p_now double precision) returns setof penstock.job
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
set enable_sort = off
as $$
begin
    return query
    select *
      from penstock.job j
     where j.state = 'ready'
       and j.expires_at <= p_now
     order by j.expires_at
     limit 1000
       for update skip locked;
end
$$;
