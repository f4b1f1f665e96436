-- Serves find: jobs with derived ids that succeeded and are kept, the last that was enqueued first.
select *
  from penstock_history
 where job >= x'ff000000000000000000000000000000'
   and (enqueued_at, job) < (:at, :derived)
   and kind = 'attempt'
   and state = 'succeeded'
   and body is not null
   and (:lanes is null or lane in (select value from json_each(:lanes)))
 order by enqueued_at desc, job desc
 limit :most;
