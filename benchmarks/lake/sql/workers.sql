-- How busy each worker was, hour by hour; an attempt counts in every hour that it ran in.
select worker,
       hour as at,
       count(*) as attempts,
       sum(
           least(extract(epoch from ended_at)::double precision, hour + 3600)
           - greatest(extract(epoch from started_at)::double precision, hour)
       ) as busy
  from attempts
 cross join lateral generate_series(
           floor(extract(epoch from started_at) / 3600)::bigint * 3600,
           floor(extract(epoch from ended_at) / 3600)::bigint * 3600,
           3600
       ) as hour
 group by worker, hour;
