-- Store jobs and flows, once however often they are sent.

-- name: enqueue
-- Store one job that needs a row of its own. Also serves settle, recover and cancel, when a job
-- leaves its parcel or its lease.
insert into penstock_job (
    id, lane, state, run_at, minute, attempt, failures, lapses, repeats, spared, enqueued_at, ended_at,
    keep_until, at_most_once, key, unique_key, unique_until, unique_seconds, expires_at, tags, search,
    reason, error, body
) values (
    :id, :lane, :state, :run_at, :minute, :attempt, :failures, :lapses, :repeats, :spared, :enqueued_at,
    :ended_at, :keep_until, :at_most_once, :key, :unique_key, :unique_until, :unique_seconds, :expires_at,
    :tags, :search, :reason, :error, :body
);

-- name: enqueue_parcel
-- Plain ready jobs, packed.
insert into penstock_parcel (id, lane, jobs, lengths, bodies, attempt, spared)
values (?, ?, ?, ?, ?, ?, ?);

-- name: send
-- Remember the id, so that it is recognised when it is sent again.
insert into penstock_sent (id, jobs, at) values (?, ?, ?);

-- name: sent_before
-- What was sent last at or before this id, in its run. Ranges that were sent never overlap, so no
-- other one can hold it.
select id, jobs
  from penstock_sent
 where id between ? and ?
 order by id desc
 limit 1;

-- name: sent_between
-- What was sent before out of this run of ids. Parcels of a run share all but their last 12 bits,
-- so a range from the run's start to the parcel's last id finds every overlap.
select id, jobs
  from penstock_sent
 where id between ? and ?;

-- name: batch
-- How many rows of a bulk enqueue are stored.
select rows from penstock_batch where id = :id;

-- name: put_batch
-- How many rows of a bulk enqueue are stored, committed with them.
insert into penstock_batch (id, rows, at) values (:id, :rows, :at)
    on conflict (id) do update set rows = excluded.rows, at = excluded.at;

-- name: put_lane
-- A lane is written down at its first use.
insert into penstock_lane (hash, app, queue, task, version, priority, runs_on, search)
values (?, ?, ?, ?, ?, ?, ?, ?)
    on conflict (hash) do update set search = excluded.search;

-- name: lane_search
-- The argument fields that every job of the lane has indexed so far.
select search from penstock_lane where hash = ?;

-- name: put_tag
-- A tag of a job, or an argument declared for search.
insert or ignore into penstock_tag (name, value, job) values (?, ?, ?);

-- name: take_unique
-- Serves enqueue and retry: the job holds this key from now on.
insert into penstock_unique (key, job, until, expires_at)
values (:key, :job, :until, :expires_at)
    on conflict (key) do update
   set job = excluded.job, until = excluded.until, expires_at = excluded.expires_at;

-- name: unique_holder
-- Serves enqueue and retry: the job that holds a unique key now.
select job
  from penstock_unique
 where key = :key
   and (expires_at is null or expires_at > :now);

-- name: free_unique
-- Serves claim (until started), settle, cancel, expire and delete (until ended). The job must be
-- the holder: a key that ran out may have been taken over.
delete from penstock_unique
 where key = :key
   and job = :job
   and until = :until;

-- name: put_flow
-- A flow as a whole; and settle, when a job spawned more of the flow it is in.
insert into penstock_flow (id, name, find, state, state_ttl, state_until, created_at, jobs_left)
values (:id, :name, :find, :state, :state_ttl, :now + :state_ttl, :now, :jobs)
    on conflict (id) do update
   set jobs_left = jobs_left + excluded.jobs_left, ended_at = null;

-- name: put_found
-- A property that a flow is found by.
insert into penstock_find (property, flow) values (?, ?);

-- name: put_node
-- A node of a flow; without needs its jobs may run.
insert into penstock_node (id, flow, place, task, jobs, on_failure, needs_left, jobs_left, freed)
values (:id, :flow, :place, :task, :jobs, :on_failure, :needs, :jobs, :needs = 0);

-- name: put_need
-- What a node needs.
insert into penstock_need (node, place, need) values (?, ?, ?);

-- name: put_member
-- Jobs of a node whose ids follow on.
insert into penstock_member (node, place, first, last) values (?, ?, ?, ?);

-- name: next_node
-- Serves enqueue and settle: the place of the next node of a flow.
select coalesce(max(place) + 1, 0) as place from penstock_node where flow = ?;

-- name: mark_sealed
-- Jobs of this app are encrypted.
insert into penstock_sealed_app (app, at) values (:app, :now)
    on conflict (app) do update set at = excluded.at;

-- name: sealed_apps
-- The apps whose jobs are encrypted.
select app from penstock_sealed_app;
