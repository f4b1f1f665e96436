-- Serves flows: those with a property, from the newest id down.
select flow as id
  from penstock.find
 where property = %(property)s
   and flow < %(below)s
 order by flow desc
 limit %(most)s;
