-- Move buckets out of this shard, and into it. A bucket is three digits in the middle of an id.

-- name: map_epoch
-- Serves the same writes: the epoch of the map that this store keeps.
select json_extract(declared, '$.epoch') as epoch
  from penstock_record
 where kind = 'shard_map' and id = 'map' and declared <> '';

-- name: leases_to_move
-- All leases: their jobs are of any bucket.
select id, worker, lane, claimed_at, ids, lengths, bodies, marks, attempt, spared from penstock_lease order by id;

-- name: parcels_to_move
-- Ready jobs, packed.
select id, lane, jobs, lengths, bodies, attempt, spared
  from penstock_parcel
 where substr(hex(substr(id, 9, 2)), 1, 3) in (select value from json_each(:buckets))
 order by id;

-- name: forget_parcels
-- They are on their way.
delete from penstock_parcel where substr(hex(substr(id, 9, 2)), 1, 3) in (select value from json_each(:buckets));

-- name: rows_to_move
-- Jobs with rows of their own.
select * from penstock_job where substr(hex(substr(id, 9, 2)), 1, 3) in (select value from json_each(:buckets)) order by id;

-- name: forget_rows
-- They are on their way.
delete from penstock_job where substr(hex(substr(id, 9, 2)), 1, 3) in (select value from json_each(:buckets));

-- name: rows_with_keys
-- Whose keys may be of other buckets than their ids, where a rule looks at keys.
select * from penstock_job where key is not null;

-- name: move_job
-- A job with a row of its own, as it was.
insert into penstock_job (
    id, lane, state, run_at, minute, attempt, failures, lapses, repeats, spared, enqueued_at, claimed_at,
    ended_at, keep_until, worker, cancelled, at_most_once, key, unique_key, unique_until, unique_seconds,
    expires_at, tags, search, reason, error, body
) values (
    :id, :lane, :state, :run_at, :minute, :attempt, :failures, :lapses, :repeats, :spared, :enqueued_at, :claimed_at,
    :ended_at, :keep_until, :worker, :cancelled, :at_most_once, :key, :unique_key, :unique_until, :unique_seconds,
    :expires_at, :tags, :search, :reason, :error, :body
);

-- name: move_tag
-- A tag of a job, or an argument declared for search.
insert or ignore into penstock_tag (name, value, job) values (:name, :value, :job);

-- name: forget_tags
-- Of a job that is on its way.
delete from penstock_tag where job = :id;

-- name: notes_to_move
-- What jobs of these buckets noted; also of those that succeeded, which stay.
select job, kind, name, at, value from penstock_note where substr(hex(substr(job, 9, 2)), 1, 3) in (select value from json_each(:buckets)) order by at, id;

-- name: forget_note
-- Of a job that is on its way.
delete from penstock_note where job = :id;

-- name: forget_kept_secret
-- Of a job that is on its way, and its secrets with it.
delete from penstock_kept_secret where job = :id;

-- name: sent_to_move
-- Ids that were stored once.
select id, jobs, 0 as lane, at from penstock_sent where substr(hex(substr(id, 9, 2)), 1, 3) in (select value from json_each(:buckets));

-- name: forget_sent_ids
-- They are remembered elsewhere from now on.
delete from penstock_sent where substr(hex(substr(id, 9, 2)), 1, 3) in (select value from json_each(:buckets));

-- name: move_sent
-- An id, or a run of them, that was stored once.
insert or ignore into penstock_sent (id, jobs, at) values (:id, :jobs, :at);

-- name: unique_keys
-- All unique keys, and the jobs that hold them.
select key, job, until, expires_at from penstock_unique;

-- name: forget_unique_keys
-- They are held elsewhere from now on.
delete from penstock_unique where substr(hex(substr(job, 9, 2)), 1, 3) in (select value from json_each(:buckets));

-- name: move_unique
-- A unique key, and the job that holds it.
insert into penstock_unique (key, job, until, expires_at) values (:key, :job, :until, :expires_at)
    on conflict (key) do update
   set job = excluded.job, until = excluded.until, expires_at = excluded.expires_at;

-- name: flows_to_move
-- Flows as a whole.
select * from penstock_flow where substr(hex(substr(id, 9, 2)), 1, 3) in (select value from json_each(:buckets)) order by id;

-- name: nodes_to_move
-- Nodes of these flows.
select * from penstock_node where substr(hex(substr(flow, 9, 2)), 1, 3) in (select value from json_each(:buckets)) order by flow, place;

-- name: needs_to_move
-- What they need.
select node, place, need, met from penstock_need where substr(hex(substr(node, 9, 2)), 1, 3) in (select value from json_each(:buckets)) order by node, place;

-- name: members_to_move
-- Their jobs.
select node, place, first, last from penstock_member where substr(hex(substr(node, 9, 2)), 1, 3) in (select value from json_each(:buckets)) order by node, place;

-- name: forget_flows
-- They go on elsewhere.
delete from penstock_flow where substr(hex(substr(id, 9, 2)), 1, 3) in (select value from json_each(:buckets));

-- name: forget_flow_finds
-- The same.
delete from penstock_find where substr(hex(substr(flow, 9, 2)), 1, 3) in (select value from json_each(:buckets));

-- name: forget_flow_nodes
-- The same.
delete from penstock_node where substr(hex(substr(flow, 9, 2)), 1, 3) in (select value from json_each(:buckets));

-- name: forget_flow_needs
-- The same.
delete from penstock_need where substr(hex(substr(node, 9, 2)), 1, 3) in (select value from json_each(:buckets));

-- name: forget_flow_members
-- The same.
delete from penstock_member where substr(hex(substr(node, 9, 2)), 1, 3) in (select value from json_each(:buckets));

-- name: move_flow
-- A flow as a whole, as it was.
insert into penstock_flow (id, name, find, state, state_ttl, state_until, created_at, ended_at, jobs_left)
values (:id, :name, :find, :state, :state_ttl, :state_until, :created_at, :ended_at, :jobs_left);

-- name: move_find
-- A property that a flow is found by.
insert into penstock_find (property, flow) values (:property, :flow);

-- name: move_node
-- A node of a flow, as it was.
insert into penstock_node (id, flow, place, task, jobs, on_failure, needs_left, jobs_left, bad, freed)
values (:id, :flow, :place, :task, :jobs, :on_failure, :needs_left, :jobs_left, :bad, :freed);

-- name: move_need
-- What a node needs.
insert into penstock_need (node, place, need, met) values (:node, :place, :need, :met);

-- name: move_member
-- Jobs of a node whose ids follow on.
insert into penstock_member (node, place, first, last) values (:node, :place, :first, :last);

-- name: batches
-- Bulk enqueues that somebody may go on with.
select id, rows, at from penstock_batch;

-- name: forget_batch
-- It goes on elsewhere.
delete from penstock_batch where id = :id;

-- name: move_batch
-- How many rows of a bulk enqueue are stored.
insert into penstock_batch (id, rows, at) values (:id, :rows, :at)
    on conflict (id) do update set rows = excluded.rows, at = excluded.at;

-- name: declared_worker
-- What a worker said of itself.
select declared from penstock_worker where id = :id;

-- name: staged_in
-- A write with rows of these buckets that is not committed yet.
select write from penstock_staged where substr(hex(substr(id, 9, 2)), 1, 3) in (select value from json_each(:buckets)) limit 1;
