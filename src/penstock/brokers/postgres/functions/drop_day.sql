-- A day that is over goes as a whole: dropped, or emptied where somebody reads the table it belongs
-- to. Answers how many rows it held. The caller sets a lock_timeout: whoever waits for the lock of
-- the whole table keeps others waiting. (Detaching concurrently is not to be had beside a partition
-- for everything else.)
create or replace function penstock.drop_day(p_partition regclass, p_drop boolean) returns bigint
language plpgsql
as $$
declare
    v_rows bigint;
begin
    execute format('lock table %s in access exclusive mode', p_partition);
    execute format('select count(*) from %s', p_partition) into v_rows;
    if p_drop then
        execute format('drop table %s', p_partition);
    else
        execute format('truncate %s', p_partition);
    end if;
    return v_rows;
end
$$;
