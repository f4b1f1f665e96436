-- Move buckets out of this shard, and into it. A bucket is three digits in the middle of an id.

-- name: hold_map
-- Serves writes of clients that know a map: it stays as it is until the end of the transaction.
select pg_advisory_xact_lock_shared(4855284203);

-- name: change_map
-- Serves take_out and bring_in: no write that was planned with the map goes on.
select pg_advisory_xact_lock(4855284203);

-- name: map_epoch
-- Serves the same writes: the epoch of the map that this store keeps.
select (declared::json ->> 'epoch')::integer as epoch from penstock.record where kind = 'shard_map' and id = 'map' and declared <> '';

-- name: leases_to_move
-- Locked first: what a job leaves its lease for is read after that.
select id, worker, lane, claimed_at, penstock.ids_in(firsts, counts) as ids, lengths, bodies, marks, attempt, spared
  from penstock.lease
 order by id
   for update;

-- name: parcels_to_move
-- Ready jobs, packed.
select id, lane, jobs, lengths, bodies, attempt, spared
  from penstock.parcel
 where substr(id::text, 20, 3) = any(%(buckets)s)
 order by id
   for update;

-- name: forget_parcels
-- They are on their way.
delete from penstock.parcel where substr(id::text, 20, 3) = any(%(buckets)s);

-- name: rows_to_move
-- Jobs with rows of their own.
select * from penstock.job where substr(id::text, 20, 3) = any(%(buckets)s) order by id
   for update;

-- name: forget_rows
-- They are on their way.
delete from penstock.job where substr(id::text, 20, 3) = any(%(buckets)s);

-- name: rows_with_keys
-- Whose keys may be of other buckets than their ids, where a rule looks at keys.
select * from penstock.job where key is not null;

-- name: move_job
-- A job with a row of its own, as it was.
insert into penstock.job (
    id, lane, state, run_at, minute, attempt, failures, lapses, repeats, spared, enqueued_at, claimed_at,
    ended_at, keep_until, worker, cancelled, at_most_once, key, unique_key, unique_until, unique_seconds,
    expires_at, tags, search, reason, error, body
) values (
    %(id)s, %(lane)s, %(state)s, %(run_at)s, %(minute)s, %(attempt)s, %(failures)s, %(lapses)s, %(repeats)s, %(spared)s, %(enqueued_at)s, %(claimed_at)s,
    %(ended_at)s, %(keep_until)s, %(worker)s, %(cancelled)s, %(at_most_once)s, %(key)s, %(unique_key)s, %(unique_until)s, %(unique_seconds)s,
    %(expires_at)s, %(tags)s, %(search)s, %(reason)s, %(error)s, %(body)s
);

-- name: move_tag
-- A tag of a job, or an argument declared for search.
insert into penstock.tag (name, value, job) values (%(name)s, %(value)s, %(job)s) on conflict do nothing;

-- name: forget_tags
-- Of a job that is on its way.
delete from penstock.tag where job = %(id)s;

-- name: notes_to_move
-- What jobs of these buckets noted; also of those that succeeded, which stay.
select job, kind, name, at, value from penstock.note where substr(job::text, 20, 3) = any(%(buckets)s) order by at, id;

-- name: forget_note
-- Of a job that is on its way.
delete from penstock.note where job = %(id)s;

-- name: forget_kept_secret
-- Of a job that is on its way, and its secrets with it.
delete from penstock.kept_secret where job = %(id)s;

-- name: sent_to_move
-- Ids that were stored once.
select id, jobs, lane, at from penstock.sent where substr(id::text, 20, 3) = any(%(buckets)s);

-- name: forget_sent_ids
-- They are remembered elsewhere from now on.
delete from penstock.sent where substr(id::text, 20, 3) = any(%(buckets)s);

-- name: move_sent
-- An id, or a run of them, that was stored once.
insert into penstock.sent (id, jobs, lane, at) values (%(id)s, %(jobs)s, %(lane)s, %(at)s) on conflict do nothing;

-- name: unique_keys
-- All unique keys, and the jobs that hold them.
select key, job, until, expires_at from penstock.unique_key;

-- name: forget_unique_keys
-- They are held elsewhere from now on.
delete from penstock.unique_key where substr(job::text, 20, 3) = any(%(buckets)s);

-- name: move_unique
-- A unique key, and the job that holds it.
insert into penstock.unique_key (key, job, until, expires_at) values (%(key)s, %(job)s, %(until)s, %(expires_at)s)
    on conflict (key) do update
   set job = excluded.job, until = excluded.until, expires_at = excluded.expires_at;

-- name: flows_to_move
-- Flows as a whole.
select * from penstock.flow where substr(id::text, 20, 3) = any(%(buckets)s) order by id
   for update;

-- name: nodes_to_move
-- Nodes of these flows.
select * from penstock.node where substr(flow::text, 20, 3) = any(%(buckets)s) order by flow, place
   for update;

-- name: needs_to_move
-- What they need.
select node, place, need, met from penstock.need where substr(node::text, 20, 3) = any(%(buckets)s) order by node, place;

-- name: members_to_move
-- Their jobs.
select node, place, first, last from penstock.member where substr(node::text, 20, 3) = any(%(buckets)s) order by node, place;

-- name: forget_flows
-- They go on elsewhere.
delete from penstock.flow where substr(id::text, 20, 3) = any(%(buckets)s);

-- name: forget_flow_finds
-- The same.
delete from penstock.find where substr(flow::text, 20, 3) = any(%(buckets)s);

-- name: forget_flow_nodes
-- The same.
delete from penstock.node where substr(flow::text, 20, 3) = any(%(buckets)s);

-- name: forget_flow_needs
-- The same.
delete from penstock.need where substr(node::text, 20, 3) = any(%(buckets)s);

-- name: forget_flow_members
-- The same.
delete from penstock.member where substr(node::text, 20, 3) = any(%(buckets)s);

-- name: move_flow
-- A flow as a whole, as it was.
insert into penstock.flow (id, name, find, state, state_ttl, state_until, created_at, ended_at, jobs_left)
values (%(id)s, %(name)s, %(find)s, %(state)s, %(state_ttl)s, %(state_until)s, %(created_at)s, %(ended_at)s, %(jobs_left)s);

-- name: move_find
-- A property that a flow is found by.
insert into penstock.find (property, flow) values (%(property)s, %(flow)s);

-- name: move_node
-- A node of a flow, as it was.
insert into penstock.node (id, flow, place, task, jobs, on_failure, needs_left, jobs_left, bad, freed)
values (%(id)s, %(flow)s, %(place)s, %(task)s, %(jobs)s, %(on_failure)s, %(needs_left)s, %(jobs_left)s, %(bad)s, %(freed)s);

-- name: move_need
-- What a node needs.
insert into penstock.need (node, place, need, met) values (%(node)s, %(place)s, %(need)s, %(met)s);

-- name: move_member
-- Jobs of a node whose ids follow on.
insert into penstock.member (node, place, first, last) values (%(node)s, %(place)s, %(first)s, %(last)s);

-- name: batches
-- Bulk enqueues that somebody may go on with.
select id, rows, at from penstock.batch;

-- name: forget_batch
-- It goes on elsewhere.
delete from penstock.batch where id = %(id)s;

-- name: move_batch
-- How many rows of a bulk enqueue are stored.
insert into penstock.batch (id, rows, at) values (%(id)s, %(rows)s, %(at)s)
    on conflict (id) do update set rows = excluded.rows, at = excluded.at;

-- name: declared_worker
-- What a worker said of itself.
select declared from penstock.worker where id = %(id)s;

-- name: staged_in
-- A write with rows of these buckets that is not committed yet.
select write from penstock.staged where substr(id::text, 20, 3) = any(%(buckets)s)
 union all
select c.write from penstock.staged_job j join penstock.staged_call c on c.call = j.call where substr(j.id::text, 20, 3) = any(%(buckets)s)
 limit 1;
