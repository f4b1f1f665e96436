-- Store how attempts ended, and count them in their flows.

-- name: settle
-- A job's row becomes ready again, failed or cancelled. The attempt is the fence.
update penstock.job
   set state = %(state)s,
       run_at = %(run_at)s,
       minute = %(minute)s,
       failures = %(failures)s,
       lapses = %(lapses)s,
       repeats = %(repeats)s,
       spared = %(spared)s,
       ended_at = %(ended_at)s,
       keep_until = %(keep_until)s,
       expires_at = %(expires_at)s,
       reason = %(reason)s,
       error = %(error)s,
       body = coalesce(%(body)s, body),
       worker = null,
       claimed_at = null,
       cancelled = false
 where id = %(id)s
   and attempt = %(attempt)s;

-- name: keep_secrets
-- Serves every verb that ends jobs: the row of this one has secrets until then.
insert into penstock.kept_secret (job, until) values (%(id)s, %(until)s)
    on conflict (job) do update set until = excluded.until;

-- name: succeed
-- Packed jobs of one lease succeeded; see functions/succeed.sql.
select penstock.succeed($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12);

-- name: succeed_rows
-- Jobs with rows of their own succeeded; see functions/succeed.sql.
select penstock.succeed_rows($1, $2, $3, $4, $5, $6, $7, $8);

-- name: settle_and_claim
-- Settle the successes of one lease and claim, in one round trip; see functions/settle_and_claim.sql.
select lane, lease, firsts, counts, lengths, bodies, job_rows, news
  from penstock.settle_and_claim(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11,
    $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26,
    $27, $28
  );

-- name: held_row
-- Serves settle and note: the row, if this attempt still holds it.
select *
  from penstock.job
 where id = %(id)s
   and state = 'running'
   and attempt = %(attempt)s
   and claimed_at = %(claimed_at)s  -- fences as well: a claim lost in a crash may be made again
   for update;

-- name: lease_marks
-- Serves settle and note: which jobs of a lease are still held; locked.
select marks, worker, claimed_at, lane from penstock.lease where id = %s for update;

-- name: mark_lease
-- Serves settle and cancel: mark jobs of a lease as settled, or asked to cancel.
update penstock.lease set marks = %s where id = %s;

-- name: lease_bodies
-- Serves settle: jobs with secrets left a lease that holds others, about to be blanked.
select lengths, bodies from penstock.lease where id = %s;

-- name: blank_lease
-- Serves settle and delete: the secrets of jobs that a lease does not hold any more.
update penstock.lease set bodies = %s where id = %s;

-- name: end_lease
-- Serves settle and recover: no job of the lease is held any more.
delete from penstock.lease where id = %s;

-- name: event
-- Serves every verb: a row of the history. The login is the database's word, not ours.
insert into penstock.history (
    kind, at, job, lane, attempt, failures, lapses, repeats, state, reason, key, enqueued_at, run_at,
    started_at, worker, tags, error, body, result, data, keep_until, login
) values (
    %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, session_user
);

-- name: tally
-- Serves every verb that changes the state of jobs: the difference of a count.
insert into penstock.tally (lane, state, minute, jobs) values (%s, %s, %s, %s);

-- name: count_flow
-- Serves settle, cancel, expire, delete and retry: jobs of a flow ended, or (a negative number) are to run
-- again. Comes before all other changes of a flow: its row is the lock for its nodes.
update penstock.flow
   set jobs_left = jobs_left - %(jobs)s,
       ended_at = case when jobs_left = %(jobs)s then %(now)s end
 where id = %(id)s
returning id, jobs_left;

-- name: count_node
-- The same for a node; `bad` of the jobs ended without success.
update penstock.node
   set jobs_left = jobs_left - %(jobs)s,
       bad = bad + %(bad)s
 where id = %(id)s
returning id, flow, jobs_left, needs_left, freed;

-- name: count_needs
-- Serves settle and retry: so many needs of a node ended, or (a negative number) are open again. The last
-- one decides whether its jobs may run.
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

-- name: add_need
-- One more need of a node that waits.
insert into penstock.need (node, place, need)
select %(node)s, coalesce(max(e.place) + 1, 0), %(need)s from penstock.need e where e.node = %(node)s;

-- name: run_after_all
-- The job of this node waits for jobs that it spawned, and runs however they end.
update penstock.node set on_failure = 'continue' where id = %s;

-- name: meet_need
-- All jobs of a node ended: the nodes that need it have one need less. Only once, by `met`.
update penstock.need
   set met = true
 where need = %(need)s
   and not met
returning node;

-- name: free
-- All needs of a node ended: its jobs become ready. By an array of ids: with a join, a plan made for an
-- empty table would read the whole table.
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
-- Serves settle and retry: the jobs of a node in one state: waiting ones that are to be cancelled because
-- a need failed, or cancelled ones that are to wait again.
select w.*
  from penstock.member m,
       lateral (
           select j.*
             from penstock.job j
            where j.id between m.first and m.last
              and j.state = %(state)s
              and (%(reason)s::text is null or j.reason = %(reason)s)
           offset 0  -- an optimizer fence: one index lookup per range, even with a plan for an empty table
       ) as w
 where m.node = %(node)s
 order by m.place, w.id;

-- name: flow_end
-- What the event of a flow that ended contains.
select f.name, f.find, sum(n.jobs)::bigint as jobs, sum(n.bad)::bigint as bad
  from penstock.flow f
  join penstock.node n on n.flow = f.id
 where f.id = %(id)s
 group by f.id, f.name, f.find;
