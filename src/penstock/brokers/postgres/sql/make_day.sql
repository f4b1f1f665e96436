-- Serves upkeep: the partitions of a day, counted from the epoch; see functions/days.sql.
select penstock.make_day(%s);
