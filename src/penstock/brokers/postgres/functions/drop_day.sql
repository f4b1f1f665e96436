-- Drop the partition of an old day, or truncate it: that locks only the partition and works while others
-- read its table. Answers how many rows it had. The caller sets a short lock_timeout: while this waits
-- for a lock of the whole table, everybody else waits behind it. (`detach partition concurrently` is not
-- possible on a table with a default partition.)
create or replace function penstock.drop_day(p_partition regclass, p_drop boolean) returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_rows bigint;
begin
    if not pg_try_advisory_xact_lock(4855284204) then  -- one at a time: each keeps a lock from counting
        return 0;
    end if;
    execute format('select count(*) from %s', p_partition) into v_rows;  -- before the exclusive lock, since it takes a while
    execute format('lock table %s in access exclusive mode', p_partition);
    if p_drop then
        execute format('drop table %s', p_partition);
    else
        execute format('truncate %s', p_partition);
    end if;
    return v_rows;
end
$$;
