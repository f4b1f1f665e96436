-- Store jobs and flows; each once, however often it is sent.

-- name: enqueue
-- Serves settle, recover and cancel: a job leaves its parcel or lease and becomes a row.
insert into penstock.job (
    id, lane, state, run_at, minute, attempt, failures, lapses, repeats, spared, enqueued_at, ended_at,
    keep_until, at_most_once, key, unique_key, unique_until, unique_seconds, expires_at, tags, search,
    reason, error, body
) values (
    %(id)s, %(lane)s, %(state)s, %(run_at)s, %(minute)s, %(attempt)s, %(failures)s, %(lapses)s, %(repeats)s, %(spared)s, %(enqueued_at)s,
    %(ended_at)s, %(keep_until)s, %(at_most_once)s, %(key)s, %(unique_key)s, %(unique_until)s, %(unique_seconds)s, %(expires_at)s,
    %(tags)s, %(search)s, %(reason)s, %(error)s, %(body)s
);

-- name: enqueue_parcel
-- Serves cancel and delete: store what is left of a parcel.
insert into penstock.parcel (id, lane, jobs, lengths, bodies, attempt, spared)
values (%s, %s, %s, %s, %s, %s, %s);

-- name: send_one
-- A parcel of one job that begins its run of ids: it can only clash with the same id, which is a unique
-- violation. Not in a function, which would double the cost. Writes and answers nothing if the id is too
-- old.
with remembered as (
    insert into penstock.sent (id, jobs, lane)
    select $1, 1, $2
     where not exists (
        select
          from penstock.meta m
         where m.name = 'pruned_before' and $1 < penstock.first_id(m.value::double precision)
     )
    returning id
),
counted as (
    insert into penstock.tally (lane, state, minute, jobs)
    select $2, 'ready', 0, 1 from remembered
)
insert into penstock.parcel (lane, id, jobs, lengths, bodies)
select $2, r.id, 1, $3, $4 from remembered r
returning 1;

-- name: send_jobs
-- Jobs with rows of their own; see functions/enqueue_jobs.sql.
select penstock.enqueue_jobs(%s::jsonb, %s) as answer;

-- name: send_parcel
-- One parcel; see functions/enqueue_parcels.sql.
select penstock.enqueue_parcel($1, $2, $3, $4, $5, $6, $7, $8);

-- name: send_parcels
-- Many parcels; see functions/enqueue_parcels.sql.
select penstock.enqueue_parcels($1, $2, $3, $4, $5, $6, $7, $8);

-- name: send_flow
-- A flow and its nodes; see functions/enqueue_flow.sql.
select penstock.enqueue_flow(%s::jsonb, %s) as new;

-- name: spawn_flow
-- Serves settle: nodes that a job spawned; see functions/enqueue_flow.sql.
select penstock.spawn_flow(%s::jsonb, %s, %s);

-- name: sent_between
-- What was sent before of a run of ids. Ids of a run share all but their last 12 bits, so the range from
-- its first id to the parcel's last id contains every overlap.
select id, jobs
  from penstock.sent
 where id between %s and %s;

-- name: batch
-- How many rows of a batch are stored; locked. An upsert, because a batch whose first rows are just being
-- committed by another call has no row to lock yet: this waits for that commit, and sees its rows.
insert into penstock.batch as b (id, rows, at) values (%(id)s, 0, %(at)s)
    on conflict (id) do update set at = b.at
returning b.rows;

-- name: put_batch
-- Store how many rows of a batch are stored, in the transaction of the jobs.
insert into penstock.batch (id, rows, at) values (%(id)s, %(rows)s, %(at)s)
    on conflict (id) do update set rows = excluded.rows, at = excluded.at;

-- name: put_lane
-- Store a lane at its first use, with the argument fields that are indexed for all its jobs: those that
-- the old and the new declaration share. The `where` avoids an update, and its lock, that changes nothing.
insert into penstock.lane as l (hash, app, queue, task, version, priority, runs_on, search)
select %(hash)s, %(app)s, %(queue)s, %(task)s, %(version)s, %(priority)s, %(runs_on)s, %(search)s
    on conflict (hash) do update
   set search = array_to_string(array(
        select unnest(string_to_array(l.search, ','))
        intersect
        select unnest(string_to_array(excluded.search, ','))
        order by 1
   ), ',')
 where l.search <> excluded.search;

-- name: take_unique
-- Serves retry: take a unique key that is free or has expired. No row: another job holds it.
insert into penstock.unique_key as u (key, job, until, expires_at)
values (%(key)s, %(job)s, %(until)s, %(expires_at)s)
    on conflict (key) do update
   set job = excluded.job, until = excluded.until, expires_at = excluded.expires_at
 where u.expires_at <= %(now)s;

-- name: lock_unique
-- Serves enqueue: of those who replace the job under a unique key one does so at a time. Until the end
-- of the transaction.
select pg_advisory_xact_lock(hashtextextended(%(key)s, 20261119));

-- name: unique_holder
-- Serves enqueue and retry: the job that holds a unique key now.
select job
  from penstock.unique_key
 where key = %(key)s
   and (expires_at is null or expires_at > %(now)s);

-- name: free_unique
-- Serves settle, cancel, expire and delete: release a unique key, if this job holds it: another job may
-- have taken it over after it expired. Skips a key that is just being taken over.
delete from penstock.unique_key
 where key in (
    select key
      from penstock.unique_key
     where key = %(key)s
       and job = %(job)s
       and until = %(until)s
       for update skip locked
 );

-- name: joinable
-- Whether this login may use the store in this database; null if there is none. Reads only the catalog,
-- which cannot fail and so cannot abort the caller's transaction. penstock.enqueue_joined runs with the
-- caller's rights; one table is tested for all, since their grants are the same.
select bool_or(
           has_schema_privilege(n.oid, 'usage')
           and has_function_privilege(p.oid, 'execute')
           and has_table_privilege(c.oid, 'insert')
       )
  from pg_catalog.pg_namespace n
  join pg_catalog.pg_proc p on p.pronamespace = n.oid
  join pg_catalog.pg_class c on c.relnamespace = n.oid
 where n.nspname = 'penstock'
   and p.proname = 'enqueue_joined'
   and c.relname = 'parcel';

-- name: mark_sealed
-- Jobs of this app are encrypted.
insert into penstock.sealed_app (app, at) values (%(app)s, %(now)s)
    on conflict (app) do update set at = excluded.at;

-- name: sealed_apps
-- The apps whose jobs are encrypted.
select app from penstock.sealed_app;
