-- Serves prune: starts that no window can hold any more; the longest is a day.
delete from penstock_start where made_at < :now - 90000;
