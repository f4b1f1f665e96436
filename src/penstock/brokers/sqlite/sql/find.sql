-- Jobs that have a row, from the newest id down.
select *
  from penstock_job
 where id < :below
   and (:lanes is null or lane in (select value from json_each(:lanes)))
 order by id desc
 limit :most;
