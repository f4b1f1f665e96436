-- Serves settle: all needs of a node ended, and its jobs are ready.
with freed as (
    update penstock.job j
       set state = 'ready',
           run_at = greatest(j.run_at, %(now)s),
           minute = case when j.run_at > %(now)s then floor(j.run_at / 60)::integer else 0 end
      from penstock.member m
     where m.node = %(node)s
       and j.id between m.first and m.last
       and j.state = 'waiting'
    returning j.lane, j.minute
)
select lane, minute, count(*) as jobs from freed group by lane, minute;
