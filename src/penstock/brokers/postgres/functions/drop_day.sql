-- A day that is over goes as a whole: dropped, or emptied where somebody reads the table it belongs
-- to. Answers how many rows it held. The caller sets a lock_timeout: whoever waits for the lock of
-- the whole table keeps others waiting. (Detaching concurrently is not to be had beside a partition
-- for everything else.)
create or replace function penstock.drop_day(p_partition regclass, p_drop boolean) returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_rows bigint;
begin
    if not pg_try_advisory_xact_lock(4855284204) then  -- two that counted would keep each other out
        return 0;
    end if;
    execute format('select count(*) from %s', p_partition) into v_rows;  -- first: it takes a while
    execute format('lock table %s in access exclusive mode', p_partition);
    if p_drop then
        execute format('drop table %s', p_partition);
    else
        execute format('truncate %s', p_partition);
    end if;
    return v_rows;
end
$$;
