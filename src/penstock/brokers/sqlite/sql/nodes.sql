-- Serves flow: its nodes, needs before those who need them.
select id, flow, task, jobs, needs_left, jobs_left, bad, on_failure
  from penstock_node
 where flow = ?
 order by place;
