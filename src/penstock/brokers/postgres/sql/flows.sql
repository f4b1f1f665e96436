-- Flows as they stand, and what their jobs answered.

-- name: flows
-- Flows, from the newest id down.
select id
  from penstock.flow
 where id < %(below)s
 order by id desc
 limit %(most)s;

-- name: flows_named
-- Those of a name, from the newest id down.
select id
  from penstock.flow
 where name = %(name)s
   and name <> ''  -- as the index says
   and id < %(below)s
 order by id desc
 limit %(most)s;

-- name: flows_found
-- Those with a property, from the newest id down.
select flow as id
  from penstock.find
 where property = %(property)s
   and flow < %(below)s
 order by flow desc
 limit %(most)s;

-- name: count_found
-- How many have a property, as far as it matters which property has fewest.
select count(*) as flows
  from (select 1 from penstock.find where property = %(property)s limit 100) as first_ones;

-- name: flow
-- A flow as it stands.
select id, name, find, state, created_at, ended_at from penstock.flow where id = %s;

-- name: nodes
-- Serves flow and retry: its nodes, needs before those who need them.
select id, flow, task, jobs, needs_left, jobs_left, bad, on_failure, freed
  from penstock.node
 where flow = %s
 order by place;

-- name: needs
-- Serves flow: what each of its nodes needs, in the order it was told.
select e.node, e.need
  from penstock.node n
  join penstock.need e on e.node = n.id
 where n.flow = %s
 order by e.node, e.place;

-- name: members
-- Serves outputs: the jobs of a node, in their order.
select first, last from penstock.member where node = %s order by place;

-- name: outputs
-- The results of a node's jobs that succeeded and are kept.
select g.job, g.result
  from penstock.member m,
       lateral (
           select h.job, h.result
             from penstock.history h
            where h.job between m.first and m.last
              and h.kind = 'attempt'
              and h.state = 'succeeded'
              and h.body is not null
           offset 0  -- so that each range is looked up, and not the whole history compared
       ) as g
 where m.node = %s;

-- name: outputs_withheld
-- Serves outputs: the jobs of a node that have rows, and so no result.
select w.id, w.state
  from penstock.member m,
       lateral (
           select j.id, j.state from penstock.job j where j.id between m.first and m.last offset 0
       ) as w
 where m.node = %s;
