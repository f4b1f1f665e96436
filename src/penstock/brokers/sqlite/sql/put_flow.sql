-- Serves enqueue: a flow as a whole; and settle, when a job spawned more of the flow it is in.
insert into penstock_flow (id, name, find, state, created_at, jobs_left)
values (:id, :name, :find, :state, :now, :jobs)
    on conflict (id) do update
   set jobs_left = jobs_left + excluded.jobs_left, ended_at = null;
