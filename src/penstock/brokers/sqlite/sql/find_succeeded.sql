-- Serves find: jobs that succeeded and are kept, from the newest id down.
select *
  from penstock_history
 where job is not null
   and job < :below
   and kind = 'attempt'
   and state = 'succeeded'
   and body is not null
   and (:lanes is null or lane in (select value from json_each(:lanes)))
 order by job desc
 limit :most;
