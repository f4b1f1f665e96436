-- Serves retry and why: a node as it stands.
select id, flow, freed, needs_left, jobs_left from penstock.node where id = %s;
