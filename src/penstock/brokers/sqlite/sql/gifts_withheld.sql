-- Serves gifts: the jobs of a node that have rows, and so no result.
select j.id, j.state
  from penstock_member m
  join penstock_job j on j.id between m.first and m.last
 where m.node = ?;
