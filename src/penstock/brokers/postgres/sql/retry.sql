-- Run ended jobs again, and undo their counts in flows.

-- name: retry
-- Make an ended job ready, or waiting for its needs, with counters at zero. An expiry that has passed is
-- removed: it would cancel the job again.
update penstock.job
   set state = %(state)s,
       run_at = %(now)s,
       minute = 0,
       failures = 0,
       lapses = 0,
       repeats = 0,
       spared = 0,
       ended_at = null,
       keep_until = null,
       reason = null,
       error = null,
       body = coalesce(%(body)s, body),  -- secrets that were given again
       expires_at = case when expires_at <= %(now)s then null else expires_at end
 where id = %(id)s;

-- name: retry_later
-- Make a scheduled job due now; it keeps its counters.
update penstock.job
   set run_at = %(now)s,
       minute = 0
 where id = %(id)s;

-- name: lock_flow
-- Lock a flow: nobody else counts in it until the commit.
select id from penstock.flow where id = %s for update;

-- name: node
-- Serves retry and why: one node.
select id, flow, freed, needs_left, jobs_left from penstock.node where id = %s;

-- name: kept_bad
-- How many failed and cancelled jobs of each node of a flow are still stored.
select m.node, count(*) as jobs
  from penstock.node n
  join penstock.member m on m.node = n.id,
       lateral (
           select j.id
             from penstock.job j
            where j.id between m.first and m.last
              and j.state in ('failed', 'cancelled')
           offset 0  -- an optimizer fence: one index lookup per range, even with a plan for an empty table
       ) as kept
 where n.flow = %s
   and n.bad > 0
 group by m.node;

-- name: unmeet_need
-- A node that had ended has a job to run again: nodes that need it wait again, unless they were freed.
update penstock.need
   set met = false
 where need = %(need)s
   and met
   and not (select n.freed from penstock.node n where n.id = need.node)
returning node;

-- name: unmeet_bad
-- A node whose jobs were cancelled because of its needs waits again for those that failed or run again.
update penstock.need
   set met = false
 where node = %(node)s
   and met
   and exists (
        select 1 from penstock.node n where n.id = need.need and (n.bad > 0 or n.jobs_left > 0)
   )
returning need;

-- name: waits_for
-- The nodes that need this one and are not freed.
select n.id, n.flow
  from penstock.need e
  join penstock.node n on n.id = e.node
 where e.need = %(need)s
   and not n.freed;
