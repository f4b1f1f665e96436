-- Serves find: the jobs with a tag, or with an argument declared for search, from the newest id down.
select job
  from penstock_tag
 where name = :name
   and value in (select value from json_each(:values))
   and job < :below
 order by job desc
 limit :most;
