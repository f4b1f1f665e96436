-- Serves settle: nodes that a job spawned; see functions/enqueue_flow.sql.
select penstock.spawn_flow(%s::jsonb, %s, %s);
