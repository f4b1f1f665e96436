-- Write down how attempts ended, and count on in their flows.

-- name: settle
-- Move a job's row on: ready again, failed or cancelled. The attempt is the fence.
update penstock_job
   set state = :state,
       run_at = :run_at,
       minute = :minute,
       failures = :failures,
       lapses = :lapses,
       repeats = :repeats,
       spared = :spared,
       ended_at = :ended_at,
       keep_until = :keep_until,
       expires_at = :expires_at,
       reason = :reason,
       error = :error,
       body = coalesce(:body, body),
       worker = null,
       claimed_at = null,
       cancelled = 0
 where id = :id
   and attempt = :attempt;

-- name: keep_secrets
-- Serves every verb that ends jobs: the row of this one has secrets until then.
insert into penstock_kept_secret (job, until) values (:id, :until)
    on conflict (job) do update set until = excluded.until;

-- name: succeed
-- The history row of a packed job that succeeded.
insert into penstock_history (
    kind, at, job, lane, attempt, state, enqueued_at, started_at, worker, body, result, keep_until
) values (
    'attempt', ?, ?, ?, ?, 'succeeded', ?, ?, ?, ?, ?, ?
);

-- name: held_row
-- Serves settle and note: the row, if this attempt still holds it.
select *
  from penstock_job
 where id = :id
   and state = 'running'
   and attempt = :attempt
   and claimed_at = :claimed_at;  -- fences as well: a claim lost in a power cut may be made again

-- name: lease_marks
-- Serves settle, note and begin: what is still held of a lease.
select marks, worker, claimed_at, lane from penstock_lease where id = ?;

-- name: mark_lease
-- Serves settle and cancel: what became of each job of a lease.
update penstock_lease set marks = ? where id = ?;

-- name: lease_bodies
-- Serves settle: jobs with secrets left a lease that holds others, about to be blanked.
select lengths, bodies from penstock_lease where id = ?;

-- name: blank_lease
-- Serves settle and delete: the secrets of jobs that a lease does not hold any more.
update penstock_lease set bodies = ? where id = ?;

-- name: end_lease
-- Serves settle and recover: nothing of it is held any more.
delete from penstock_lease where id = ?;

-- name: event
-- Serves every verb: one of the rarer events, and an attempt that ended.
insert into penstock_history (
    kind, at, job, lane, attempt, failures, lapses, repeats, state, reason, key, enqueued_at, run_at,
    started_at, worker, tags, error, body, result, data, keep_until
) values (
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?
);

-- name: tally
-- Serves every verb that moves jobs: how many more (or fewer) of a lane are in a state.
insert into penstock_tally (lane, state, minute, jobs) values (?, ?, ?, ?)
    on conflict (lane, state, minute) do update set jobs = jobs + excluded.jobs;

-- name: count_flow
-- Serves settle, cancel, expire, delete and retry: jobs of a flow ended, or (fewer than none) are to
-- run again. First of all that is done to a flow: its row is the lock for its nodes.
update penstock_flow
   set jobs_left = jobs_left - :jobs,
       ended_at = case when jobs_left = :jobs then :now end
 where id = :id
returning id, jobs_left;

-- name: count_node
-- Serves the same: jobs of a node ended, so many of them without success, or are to run again.
update penstock_node
   set jobs_left = jobs_left - :jobs,
       bad = bad + :bad
 where id = :id
returning id, flow, jobs_left, needs_left, freed;

-- name: count_needs
-- Serves settle and retry: so many needs of a node ended (or, fewer than none, are open again). The
-- last decides whether its jobs may run.
update penstock_node
   set needs_left = needs_left - :needs,
       freed = needs_left = :needs
           and (on_failure = 'continue'
                or not exists (
                    select 1
                      from penstock_need e
                      join penstock_node n on n.id = e.need
                     where e.node = penstock_node.id
                       and n.bad > 0
                ))
 where id = :id
returning id, flow, needs_left, freed;

-- name: add_need
-- One more need of a node that waits.
insert into penstock_need (node, place, need)
select :node, coalesce(max(place) + 1, 0), :need from penstock_need where node = :node;

-- name: run_after_all
-- The job of this node waits for jobs that it spawned, and runs however they end.
update penstock_node set on_failure = 'continue' where id = ?;

-- name: meet_need
-- All jobs of a node ended; each who needs it has one need less, once.
update penstock_need
   set met = 1
 where need = :need
   and met = 0
returning node;

-- name: free
-- All needs of a node ended, and its jobs are ready.
update penstock_job
   set state = 'ready',
       run_at = max(run_at, :now),
       minute = case when run_at > :now then cast(run_at / 60 as integer) else 0 end
 where state = 'waiting'
   and id in (
        select j.id
          from penstock_member m
          join penstock_job j on j.id between m.first and m.last
         where m.node = :node
   )
returning lane, minute, 1 as jobs;

-- name: member_rows
-- Serves settle and retry: the jobs of a node that are in a state: those that wait, to be cancelled
-- because of its needs, and those that were, to wait again.
select j.*
  from penstock_member m
  join penstock_job j on j.id between m.first and m.last
 where m.node = :node
   and j.state = :state
   and (:reason is null or j.reason = :reason)
 order by m.place, j.id;

-- name: flow_end
-- What the history says of a flow that ended.
select f.name, f.find, sum(n.jobs) as jobs, sum(n.bad) as bad
  from penstock_flow f
  join penstock_node n on n.flow = f.id
 where f.id = :id
 group by f.id, f.name, f.find;
