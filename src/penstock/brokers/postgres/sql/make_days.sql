-- Serves migrate: a new store has its partitions from the first row on.
select penstock.make_day(day)
  from (select floor(extract(epoch from clock_timestamp()) / 86400)::integer as today) as clock,
       generate_series(today, today + 7) as day;
