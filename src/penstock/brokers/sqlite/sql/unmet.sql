-- Serves why: the nodes that a node still waits for.
select n.id, n.flow, n.task, n.jobs, n.needs_left, n.jobs_left, n.bad, n.on_failure
  from penstock_need e
  join penstock_node n on n.id = e.need
 where e.node = ?
   and e.met = 0
 order by e.place;
