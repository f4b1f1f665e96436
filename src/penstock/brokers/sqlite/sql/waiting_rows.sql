-- Serves settle: the jobs of a node that wait, to be cancelled because of its needs.
select j.*
  from penstock_member m
  join penstock_job j on j.id between m.first and m.last
 where m.node = :node
   and j.state = 'waiting'
 order by m.place, j.id;
