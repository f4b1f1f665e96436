-- Serves flows: those of a name, from the newest id down.
select id
  from penstock.flow
 where name = %(name)s
   and name <> ''  -- as the index says
   and id < %(below)s
 order by id desc
 limit %(most)s;
