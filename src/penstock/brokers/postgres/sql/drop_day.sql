-- Serves prune: forget a day as a whole; see functions/drop_day.sql.
select penstock.drop_day(%s::regclass, %s) as rows;
