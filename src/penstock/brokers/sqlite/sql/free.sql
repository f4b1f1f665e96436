-- Serves settle: all needs of a node ended, and its jobs are ready.
update penstock_job
   set state = 'ready',
       run_at = max(run_at, :now),
       minute = case when run_at > :now then cast(run_at / 60 as integer) else 0 end
 where state = 'waiting'
   and id in (
        select j.id
          from penstock_member m
          join penstock_job j on j.id between m.first and m.last
         where m.node = :node
   )
returning lane, minute, 1 as jobs;
