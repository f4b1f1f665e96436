-- Serves settle: all needs of a node ended, and its jobs are ready. By their ids, as an array: a
-- planner that takes the table for empty would go through all of it.
with freed as (
    update penstock.job j
       set state = 'ready',
           run_at = greatest(j.run_at, %(now)s),
           minute = case when j.run_at > %(now)s then floor(j.run_at / 60)::integer else 0 end
     where j.id = any(array(
            select w.id
              from penstock.member m,
                   lateral (
                       select k.id from penstock.job k where k.id between m.first and m.last offset 0
                   ) as w
             where m.node = %(node)s
           ))
       and j.state = 'waiting'
    returning j.lane, j.minute
)
select lane, minute, count(*) as jobs from freed group by lane, minute;
