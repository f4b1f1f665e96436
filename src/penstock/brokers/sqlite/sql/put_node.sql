-- Serves enqueue: a node of a flow; without needs its jobs may run.
insert into penstock_node (id, flow, place, task, jobs, on_failure, needs_left, jobs_left, freed)
values (:id, :flow, :place, :task, :jobs, :on_failure, :needs, :jobs, :needs = 0);
