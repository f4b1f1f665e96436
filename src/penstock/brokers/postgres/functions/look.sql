-- What there is to claim: the lanes that have anything ready, with their oldest parcel and their
-- earliest row; its queue's policy, if it is handed out by key, in `news`; and, in a row without a lane,
-- the news that claim has too. Skips from lane to lane:
-- the cost is that of the lanes, however many jobs are in them.
--
-- With lanes it looks only there, and from where the caller was: what is dead before that, because
-- some snapshot is open, costs nothing. Whatever was committed late is found from the bottom.
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
    v_held double precision;
    v_free double precision;
begin
    for i in 1 .. coalesce(array_length(p_lanes, 1), 0) loop
        if v_rules then
            v_held := penstock.held(p_lanes[i], v_limits, p_now, p_lease_time);
            v_free := least(v_free, v_held);
            continue when v_held is not null;
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
        end if;
    end loop;
    if p_lanes is null then
        run_at := null;
        select p.lane, p.id, p.jobs into v_lane, first, jobs
          from penstock.parcel p where p.lane > penstock.lane_staged() order by p.lane, p.id limit 1;
        while v_lane is not null loop
            if v_rules then
                v_held := penstock.held(v_lane, v_limits, p_now, p_lease_time);
                v_free := least(v_free, v_held);
            end if;
            if v_held is null then
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
                v_held := penstock.held(v_lane, v_limits, p_now, p_lease_time);
                v_free := least(v_free, v_held);
            end if;
            if v_held is null then
                lane := v_lane;
                if v_orders then
                    news := penstock.policy_of(lane);
                end if;
                return next;
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
    if v_limits and v_free is not null then
        news := news || ' limited';
    end if;
    if v_free < 'infinity' then
        news := news || ' free=' || v_free;
    end if;
    if news <> '' then
        return next;
    end if;
end
$$;

-- Whether a rule covers this whole lane: one of the eight ways to name it, so that a thousand rules
-- cost no more than one.
create or replace function penstock.kept_back(p_lane bigint, p_now double precision) returns boolean
language plpgsql stable
set enable_seqscan = off
as $$
begin
    return exists (
        select 1
          from penstock.lane l
          join penstock.rule r
            on r.kind in ('block', 'pause')
           and r.queue in ('', l.queue)
           and r.task in ('', l.task)
           and r.version in (-1, l.version)
           and r.tag = ''
           and r.tag_value = ''
           and r.key = ''
         where l.hash = p_lane
           and (r.until is null or r.until > p_now)
    );
end
$$;

-- Null: jobs of this lane may be handed out. Else in how many seconds that may be, as far as that is
-- known: infinity under a pause, a block, or a limit whose room is taken by jobs that run.
create or replace function penstock.held(
    p_lane bigint, p_limits boolean, p_now double precision, p_lease_time double precision
) returns double precision
language plpgsql
as $$
declare
    v_room record;
begin
    if penstock.kept_back(p_lane, p_now) then
        return 'infinity';
    end if;
    if not p_limits then
        return null;
    end if;
    select * into v_room from penstock.room(p_lane, 1, null, p_now, p_lease_time);
    if v_room.jobs > 0 then
        return null;
    end if;
    return v_room.free_in;
end
$$;

-- `expired`: jobs whose time to start is over wait to be cancelled; `lapsed`: a worker's lease ran out.
create or replace function penstock.news(p_now double precision, p_lease_time double precision)
returns text
language sql stable
as $$
    -- Ordered, with sorting off in whoever calls: a planner that takes the table for empty might
    -- otherwise go through all that are ready.
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

-- Whether anything is held by a worker that is not there: it was given up while its claim was under
-- way. There are as many rows as claims in flight; a worker each is looked up by its key, whatever
-- the planner thinks of those tables.
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

-- Ready jobs whose time to start is over, locked; some of them, if there are many.
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
