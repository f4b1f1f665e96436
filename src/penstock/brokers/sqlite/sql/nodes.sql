-- Serves flow and retry: its nodes, needs before those who need them.
select id, flow, task, jobs, needs_left, jobs_left, bad, on_failure, freed
  from penstock_node
 where flow = ?
 order by place;
