-- Whether a pause or block covers the whole lane. A rule names its queue, task and version, or leaves them
-- open: eight lookups in the primary key, however many rules there are.
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

-- Null if jobs of this lane may start; else in how many seconds they may: infinity under a pause, a block,
-- or a limit of running jobs.
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
