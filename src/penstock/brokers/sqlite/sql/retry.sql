-- Run ended jobs again, and take back what they counted in their flows.

-- name: retry
-- Ready at once, or waiting for its needs, counters at zero; a time to start by that is over does not
-- end it again.
update penstock_job
   set state = :state,
       run_at = :now,
       minute = 0,
       failures = 0,
       lapses = 0,
       repeats = 0,
       spared = 0,
       ended_at = null,
       keep_until = null,
       reason = null,
       error = null,
       body = coalesce(:body, body),  -- secrets that were given again
       expires_at = case when expires_at <= :now then null else expires_at end
 where id = :id;

-- name: retry_later
-- A job that waits for a later time is due now, and keeps its counters.
update penstock_job
   set run_at = :now,
       minute = 0
 where id = :id;

-- name: lock_flow
-- Nobody else counts in this flow until the end of the transaction. One writer at a time has the
-- file to itself, so a look is enough.
select id from penstock_flow where id = ?;

-- name: node
-- Serves retry and why: a node as it stands.
select id, flow, freed, needs_left, jobs_left from penstock_node where id = ?;

-- name: kept_bad
-- Of each node of a flow, how many jobs that ended without success are still there. Joined in this
-- order: the planner may think that going through all jobs is as good.
select m.node, count(*) as jobs
  from penstock_node n
 cross join penstock_member m on m.node = n.id
 cross join penstock_job j on j.id between m.first and m.last
 where n.flow = ?
   and n.bad > 0
   and j.state in ('failed', 'cancelled')
 group by m.node;

-- name: unmeet_need
-- A node that had ended is open again; whoever was freed by it stays so.
update penstock_need
   set met = 0
 where need = :need
   and met = 1
   and not (select freed from penstock_node where id = node)
returning node;

-- name: unmeet_bad
-- A job that was cancelled because of its needs waits for those that are to blame.
update penstock_need
   set met = 0
 where node = :node
   and met = 1
   and exists (
        select 1 from penstock_node n where n.id = need and (n.bad > 0 or n.jobs_left > 0)
   )
returning need;

-- name: waits_for
-- The nodes that need this one, and are not freed.
select n.id, n.flow
  from penstock_need e
  join penstock_node n on n.id = e.node
 where e.need = :need
   and not n.freed;
