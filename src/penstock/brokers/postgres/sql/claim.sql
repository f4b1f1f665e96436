-- Hand due jobs to a worker.

-- name: claim
-- Hand due jobs to a worker; see functions/claim.sql.
select lane, lease, firsts, counts, lengths, bodies, job_rows, news
  from penstock.claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15);

-- name: look
-- The lanes that have ready jobs; see functions/busy_lanes.sql.
select lane, first, jobs, run_at, news from penstock.busy_lanes($1, $2, $3, $4, $5);

-- name: claimed_rows
-- The rows that a claim handed out.
select * from penstock.job where id = any(%s);

-- name: lanes_of
-- Lanes by their hashes.
select hash, app, queue, task, version, priority, runs_on, search
  from penstock.lane
 where hash = any(%s);

-- name: take_parcel
-- Serves cancel and delete: remove a parcel; what is left of it is stored again.
delete from penstock.parcel where lane = %(lane)s and id = %(id)s;

-- name: running_leases
-- Serves workers, and count and why under a limit: what is running out of parcels, a row per claim in
-- flight.
select lane, worker, marks from penstock.lease;

-- name: running_rows
-- Serves count and why under a limit: how many rows run, by worker and key.
select lane, worker, key, count(*) as jobs
  from penstock.job
 where state = 'running'
   and worker is not null
 group by lane, worker, key;

-- name: starts
-- Serves count and why under a rate limit: the starts that it counts, of one key.
select id, boot, at, made_at, jobs
  from penstock.start
 where queue = %(queue)s
   and task = %(task)s
   and per_key = %(per_key)s
   and key = %(key)s;

-- name: expire
-- Serves claim, recover and prune: ready jobs whose time to start is over.
select * from penstock.expired(%(now)s);

-- name: expire_waiting
-- Serves claim, recover and prune: jobs of flows that wait and whose time to start is over. Not locked
-- yet: their flows must be locked first.
select j.id, j.body
  from penstock.job j
 where j.state = 'waiting'
   and j.expires_at <= %(now)s
 order by j.expires_at
 limit 1000;
