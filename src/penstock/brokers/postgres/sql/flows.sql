-- Flows, their nodes and their outputs.

-- name: flows
-- Flows, from the newest id down.
select id
  from penstock.flow
 where id < %(below)s
 order by id desc
 limit %(most)s;

-- name: flows_named
-- Flows of one name, from the newest id down.
select id
  from penstock.flow
 where name = %(name)s
   and name <> ''  -- the condition of the partial index
   and id < %(below)s
 order by id desc
 limit %(most)s;

-- name: flows_found
-- Flows with a property, from the newest id down.
select flow as id
  from penstock.find
 where property = %(property)s
   and flow < %(below)s
 order by flow desc
 limit %(most)s;

-- name: count_found
-- How many flows have a property, counted up to 100: the rarest one is looked up.
select count(*) as flows
  from (select 1 from penstock.find where property = %(property)s limit 100) as first_ones;

-- name: flow
-- One flow.
select id, name, find, state, state_ttl, state_until, created_at, ended_at from penstock.flow where id = %s;

-- name: nodes
-- Serves flow and retry: its nodes, each after those that it needs.
select id, flow, task, jobs, needs_left, jobs_left, bad, on_failure, freed
  from penstock.node
 where flow = %s
 order by place;

-- name: needs
-- Serves flow: what each of its nodes needs, in the declared order.
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
           offset 0  -- an optimizer fence: one index lookup per range, no join with the whole history
       ) as g
 where m.node = %s;

-- name: outputs_withheld
-- Serves outputs: the jobs of a node that have a row, and so no result yet.
select w.id, w.state
  from penstock.member m,
       lateral (
           select j.id, j.state from penstock.job j where j.id between m.first and m.last offset 0
       ) as w
 where m.node = %s;
