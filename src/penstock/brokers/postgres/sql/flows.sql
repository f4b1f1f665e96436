-- Flows, from the newest id down.
select id
  from penstock.flow
 where id < %(below)s
 order by id desc
 limit %(most)s;
