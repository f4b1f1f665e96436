-- The same by queue and hour.
with timed as (
    select *,
           extract(epoch from ended_at - started_at)::double precision as run,
           case when run_at <= started_at
                then extract(epoch from started_at - run_at)::double precision
           end as wait
      from attempts
)
select queue,
       floor(extract(epoch from ended_at) / 3600) * 3600 as at,
       count(*) as attempts,
       count(*) filter (where state <> 'ready') as jobs,
       count(*) filter (where state = 'failed') as failed,
       count(*) filter (where state = 'ready' and reason in ('error', 'timeout')) as retries,
       count(*) filter (where reason in ('crashed', 'lost')) as lapses,
       sum(run) as busy,
       percentile_cont(array[0.5, 0.95, 0.99]) within group (order by wait) as waits,
       percentile_cont(array[0.5, 0.95, 0.99]) within group (order by run) as runs
  from timed
 group by queue, at;
