-- Run ended jobs again, and take back what they counted in their flows.

-- name: retry
-- Ready at once, or waiting for its needs, counters at zero; a time to start by that is over does not
-- end it again.
update penstock.job
   set state = %(state)s,
       run_at = %(now)s,
       minute = 0,
       failures = 0,
       lapses = 0,
       repeats = 0,
       ended_at = null,
       keep_until = null,
       reason = null,
       error = null,
       expires_at = case when expires_at <= %(now)s then null else expires_at end
 where id = %(id)s;

-- name: retry_later
-- A job that waits for a later time is due now, and keeps its counters.
update penstock.job
   set run_at = %(now)s,
       minute = 0
 where id = %(id)s;

-- name: lock_flow
-- Nobody else counts in this flow until the end of the transaction.
select id from penstock.flow where id = %s for update;

-- name: node
-- Serves retry and why: a node as it stands.
select id, flow, freed, needs_left, jobs_left from penstock.node where id = %s;

-- name: kept_bad
-- Of each node of a flow, how many jobs that ended without success are still there.
select m.node, count(*) as jobs
  from penstock.node n
  join penstock.member m on m.node = n.id,
       lateral (
           select j.id
             from penstock.job j
            where j.id between m.first and m.last
              and j.state in ('failed', 'cancelled')
           offset 0  -- so that each range is looked up, whatever the planner thinks of the table
       ) as kept
 where n.flow = %s
   and n.bad > 0
 group by m.node;

-- name: unmeet_need
-- A node that had ended is open again; whoever was freed by it stays so.
update penstock.need
   set met = false
 where need = %(need)s
   and met
   and not (select n.freed from penstock.node n where n.id = need.node)
returning node;

-- name: unmeet_bad
-- A job that was cancelled because of its needs waits for those that are to blame.
update penstock.need
   set met = false
 where node = %(node)s
   and met
   and exists (
        select 1 from penstock.node n where n.id = need.need and (n.bad > 0 or n.jobs_left > 0)
   )
returning need;

-- name: waits_for
-- The nodes that need this one, and are not freed.
select n.id, n.flow
  from penstock.need e
  join penstock.node n on n.id = e.node
 where e.need = %(need)s
   and not n.freed;
