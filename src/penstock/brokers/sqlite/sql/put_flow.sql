-- Serves enqueue: a flow as a whole. No row: it was stored before.
insert into penstock_flow (id, name, find, state, created_at, jobs_left)
values (:id, :name, :find, :state, :now, :jobs)
    on conflict (id) do nothing
returning id;
