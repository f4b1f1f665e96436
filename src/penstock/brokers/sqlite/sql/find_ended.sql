-- Serves find, when only failed and cancelled ones are asked for.
select *
  from penstock_job
 where id < :below
   and state in ('failed', 'cancelled')
   and (:lanes is null or lane in (select value from json_each(:lanes)))
 order by id desc
 limit :most;
