-- Serves scan: jobs with rows of their own, of a span of ids.
select *
  from penstock_job
 where id > :after
   and id <= :until
   and (:lanes is null or lane in (select value from json_each(:lanes)));
