-- Serves set_mark: the first row that was not pruned yet, leaving out what is kept for longer.
select min(position) as position
  from penstock_history
 where keep_until is null;
