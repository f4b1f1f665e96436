-- Serves flows: those of a name, from the newest id down.
select id
  from penstock_flow
 where name = :name
   and name <> ''  -- as the index says
   and id < :below
 order by id desc
 limit :most;
