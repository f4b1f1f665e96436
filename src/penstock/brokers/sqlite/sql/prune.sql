-- Forget history up to the first row that is young enough, but for what is to be kept longer.
delete from penstock_history
 where position < coalesce(
    (select position from penstock_history where at >= :before order by position limit 1),
    (select max(position) + 1 from penstock_history)
 )
   and (keep_until is null or keep_until <= :now);
