-- Write down how attempts ended, and count on in their flows.

-- name: settle
-- Move a job's row on: ready again, failed or cancelled. The attempt is the fence.
update penstock.job
   set state = %(state)s,
       run_at = %(run_at)s,
       minute = %(minute)s,
       failures = %(failures)s,
       lapses = %(lapses)s,
       repeats = %(repeats)s,
       ended_at = %(ended_at)s,
       keep_until = %(keep_until)s,
       reason = %(reason)s,
       error = %(error)s,
       worker = null,
       claimed_at = null,
       cancelled = false
 where id = %(id)s
   and attempt = %(attempt)s;

-- name: succeed
-- Packed jobs of one lease succeeded; see functions/succeed.sql.
select penstock.succeed($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12);

-- name: succeed_rows
-- Jobs with rows of their own succeeded; see functions/succeed.sql.
select penstock.succeed_rows($1, $2, $3, $4, $5, $6, $7, $8);

-- name: settle_and_claim
-- Settle one lease's successes and claim, in one round trip; see functions/settle_and_claim.sql.
select lane, lease, firsts, counts, lengths, bodies, job_rows, news
  from penstock.settle_and_claim(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11,
    $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24
  );

-- name: settle_members_and_claim
-- As settle_and_claim, for jobs of one node; see functions/settle_members_and_claim.sql.
select lane, lease, firsts, counts, lengths, bodies, job_rows, news
  from penstock.settle_members_and_claim(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11,
    $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26
  );

-- name: held_row
-- Serves settle and note: the row, if this attempt still holds it.
select *
  from penstock.job
 where id = %(id)s
   and state = 'running'
   and attempt = %(attempt)s
   and claimed_at = %(claimed_at)s  -- tells apart claims that got the same number after a crash
   for update;

-- name: lease_marks
-- Serves settle, note and begin: what is still held of a lease.
select marks, worker, claimed_at, lane from penstock.lease where id = %s for update;

-- name: mark_lease
-- Serves settle and cancel: what became of each job of a lease.
update penstock.lease set marks = %s where id = %s;

-- name: end_lease
-- Serves settle and recover: nothing of it is held any more.
delete from penstock.lease where id = %s;

-- name: event
-- Serves every verb: one of the rarer events, and an attempt that ended.
insert into penstock.history (
    kind, at, job, lane, attempt, failures, lapses, repeats, state, reason, key, enqueued_at, run_at,
    started_at, worker, tags, error, body, result, data, keep_until
) values (
    %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s
);

-- name: tally
-- Serves every verb that moves jobs: how many more (or fewer) of a lane are in a state.
insert into penstock.tally (lane, state, minute, jobs) values (%s, %s, %s, %s);

-- name: count_flow
-- Serves settle, cancel, expire, delete and retry: jobs of a flow ended, or (fewer than none) are to
-- run again. First of all that is done to a flow: its row is the lock for its nodes.
update penstock.flow
   set jobs_left = jobs_left - %(jobs)s,
       ended_at = case when jobs_left = %(jobs)s then %(now)s end
 where id = %(id)s
returning id, jobs_left;

-- name: count_node
-- Serves the same: jobs of a node ended, so many of them without success, or are to run again.
update penstock.node
   set jobs_left = jobs_left - %(jobs)s,
       bad = bad + %(bad)s
 where id = %(id)s
returning id, flow, jobs_left, needs_left, freed;

-- name: count_needs
-- Serves settle and retry: so many needs of a node ended (or, fewer than none, are open again). The
-- last decides whether its jobs may run.
update penstock.node
   set needs_left = needs_left - %(needs)s,
       freed = needs_left = %(needs)s
           and (on_failure = 'continue'
                or not exists (
                    select 1
                      from penstock.need e
                      join penstock.node n on n.id = e.need
                     where e.node = penstock.node.id
                       and n.bad > 0
                ))
 where id = %(id)s
returning id, flow, needs_left, freed;

-- name: meet_need
-- All jobs of a node ended; each who needs it has one need less, once.
update penstock.need
   set met = true
 where need = %(need)s
   and not met
returning node;

-- name: free
-- All needs of a node ended, and its jobs are ready. By their ids, as an array: a planner that
-- takes the table for empty would go through all of it.
with freed as (
    update penstock.job j
       set state = 'ready',
           run_at = greatest(j.run_at, %(now)s),
           minute = case when j.run_at > %(now)s then floor(j.run_at / 60)::integer else 0 end
     where j.id = any(array(
            select w.id
              from penstock.member m,
                   lateral (
                       select k.id from penstock.job k where k.id between m.first and m.last offset 0
                   ) as w
             where m.node = %(node)s
           ))
       and j.state = 'waiting'
    returning j.lane, j.minute
)
select lane, minute, count(*) as jobs from freed group by lane, minute;

-- name: member_rows
-- Serves settle and retry: the jobs of a node that are in a state: those that wait, to be cancelled
-- because of its needs, and those that were, to wait again.
select w.*
  from penstock.member m,
       lateral (
           select j.*
             from penstock.job j
            where j.id between m.first and m.last
              and j.state = %(state)s
              and (%(reason)s::text is null or j.reason = %(reason)s)
           offset 0  -- so that each range is looked up, whatever the planner thinks of the table
       ) as w
 where m.node = %(node)s
 order by m.place, w.id;

-- name: flow_end
-- What the history says of a flow that ended.
select f.name, f.find, sum(n.jobs)::bigint as jobs, sum(n.bad)::bigint as bad
  from penstock.flow f
  join penstock.node n on n.flow = f.id
 where f.id = %(id)s
 group by f.id, f.name, f.find;
