-- Serves find: jobs with derived ids that have a row, the last that was enqueued first.
select *
  from penstock_job
 where id >= x'ff000000000000000000000000000000'
   and (enqueued_at, id) < (:at, :derived)
   and (:lanes is null or lane in (select value from json_each(:lanes)))
 order by enqueued_at desc, id desc
 limit :most;
