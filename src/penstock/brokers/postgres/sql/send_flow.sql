-- Serves enqueue: a flow and its nodes; see functions/enqueue_flow.sql.
select penstock.enqueue_flow(%s::jsonb, %s) as new;
