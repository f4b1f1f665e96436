-- Serves prune: starts that no window can hold any more; the longest is a day.
delete from penstock.start where made_at < %(now)s - 90000;
