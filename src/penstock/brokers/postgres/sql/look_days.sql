-- Serves doctor: days to come that lack a partition.
select to_char(d, 'YYYY-MM-DD') as day
  from generate_series((now() at time zone 'UTC')::date,
                       (now() at time zone 'UTC')::date + %(days)s::integer, interval '1 day') as d
 where to_regclass('penstock.sent_' || to_char(d, 'YYYYMMDD')) is null
    or to_regclass('penstock.history_' || to_char(d, 'YYYYMMDD')) is null
 order by d;
