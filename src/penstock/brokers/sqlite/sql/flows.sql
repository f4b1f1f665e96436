-- Flows, from the newest id down.
select id
  from penstock_flow
 where id < :below
 order by id desc
 limit :most;
