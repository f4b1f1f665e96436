-- Flows as they stand, and what their jobs answered.

-- name: flows
-- Flows, from the newest id down.
select id
  from penstock_flow
 where id < :below
 order by id desc
 limit :most;

-- name: flows_named
-- Those of a name, from the newest id down.
select id
  from penstock_flow
 where name = :name
   and name <> ''  -- as the index says
   and id < :below
 order by id desc
 limit :most;

-- name: flows_found
-- Those with a property, from the newest id down.
select flow as id
  from penstock_find
 where property = :property
   and flow < :below
 order by flow desc
 limit :most;

-- name: count_found
-- How many have a property, as far as it matters which property has fewest.
select count(*) as flows
  from (select 1 from penstock_find where property = :property limit 100) as first_ones;

-- name: flow
-- A flow as it stands.
select id, name, find, state, state_ttl, state_until, created_at, ended_at from penstock_flow where id = ?;

-- name: nodes
-- Serves flow and retry: its nodes, needs before those who need them.
select id, flow, task, jobs, needs_left, jobs_left, bad, on_failure, freed
  from penstock_node
 where flow = ?
 order by place;

-- name: needs
-- Serves flow: what each of its nodes needs, in the order it was told.
select e.node, e.need
  from penstock_node n
  join penstock_need e on e.node = n.id
 where n.flow = ?
 order by e.node, e.place;

-- name: members
-- Serves outputs: the jobs of a node, in their order.
select first, last from penstock_member where node = ? order by place;

-- name: outputs
-- The results of a node's jobs that succeeded and are kept.
select h.job, h.result
  from penstock_member m
  join penstock_history h on h.job between m.first and m.last
 where m.node = ?
   and h.kind = 'attempt'
   and h.state = 'succeeded'
   and h.body is not null;

-- name: outputs_withheld
-- Serves outputs: the jobs of a node that have rows, and so no result.
select j.id, j.state
  from penstock_member m
  join penstock_job j on j.id between m.first and m.last
 where m.node = ?;
