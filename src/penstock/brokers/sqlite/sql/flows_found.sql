-- Serves flows: those with a property, from the newest id down.
select flow as id
  from penstock_find
 where property = :property
   and flow < :below
 order by flow desc
 limit :most;
