-- Forget these rows of the history, but for what is to be kept longer.
delete from penstock_history
 where position > :after
   and position < :end
   and (keep_until is null or keep_until <= :now);
