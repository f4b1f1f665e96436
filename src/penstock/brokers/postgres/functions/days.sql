-- Create the partitions of one day, of penstock.sent (whose ids begin with their time) and of the history.
-- Security definer: a worker's login need not own the tables. Refuses days that are not about now, since
-- every partition makes planning slower.
create or replace function penstock.make_day(p_day integer) returns void
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_name text := to_char(to_timestamp(p_day::double precision * 86400) at time zone 'UTC', 'YYYYMMDD');
begin
    if p_day not between floor(extract(epoch from clock_timestamp()) / 86400) - 1
                     and floor(extract(epoch from clock_timestamp()) / 86400) + 30 then
        return;
    end if;
    if to_regclass('penstock.sent_' || v_name) is not null
       and to_regclass('penstock.history_' || v_name) is not null then
        return;
    end if;
    -- At midnight all workers call this: one at a time.
    perform pg_advisory_xact_lock(4855284203);
    if to_regclass('penstock.sent_' || v_name) is null then
        execute format(
            'create table penstock.%I partition of penstock.sent for values from (%L) to (%L)',
            'sent_' || v_name, penstock.first_id(p_day * 86400.0), penstock.first_id((p_day + 1) * 86400.0)
        );
    end if;
    if to_regclass('penstock.history_' || v_name) is null then
        execute format(
            'create table penstock.%I partition of penstock.history for values from (%s) to (%s)',
            'history_' || v_name, p_day::bigint * 86400, (p_day + 1)::bigint * 86400
        );
        -- Without policies: only through penstock.history, which has them.
        execute format('alter table penstock.%I enable row level security', 'history_' || v_name);
    end if;
end
$$;

revoke all on function penstock.make_day(integer) from public;

-- The day in a partition's name, counted from the epoch; null if it has none.
create or replace function penstock.day_of(p_name text) returns integer
language sql immutable strict
as $$
    select case when p_name ~ '_[0-9]{8}$'
                then (to_date(right(p_name, 8), 'YYYYMMDD') - date '1970-01-01')
           end
$$;
