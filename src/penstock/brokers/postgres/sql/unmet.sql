-- Serves why: the nodes that a node still waits for.
select n.id, n.flow, n.task, n.jobs, n.needs_left, n.jobs_left, n.bad, n.on_failure
  from penstock.need e
  join penstock.node n on n.id = e.need
 where e.node = %s
   and not e.met
 order by e.place;
