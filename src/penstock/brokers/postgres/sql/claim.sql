-- Hand due jobs to a worker.

-- name: claim
-- Hand due jobs to a worker; see functions/claim.sql.
select lane, lease, firsts, counts, lengths, bodies, job_rows, news
  from penstock.claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13);

-- name: look
-- The lanes with work; see functions/look.sql.
select lane, first, jobs, run_at, news from penstock.busy_lanes($1, $2, $3, $4, $5);

-- name: claimed_rows
-- The rows that it handed out.
select * from penstock.job where id = any(%s);

-- name: lanes_of
-- The words behind the hashes of lanes.
select hash, app, queue, task, version, priority, runs_on, search
  from penstock.lane
 where hash = any(%s);

-- name: take_parcel
-- Serves claim, cancel and delete: the whole parcel is leaving.
delete from penstock.parcel where lane = %(lane)s and id = %(id)s;

-- name: running_leases
-- Serves workers, and claim, count and why under a limit: what is held out of parcels, a row per claim in flight.
select lane, worker, marks from penstock.lease;

-- name: running_rows
-- Serves claim, count and why under a limit: the rows that run, by who holds them and by key.
select lane, worker, key, count(*) as jobs
  from penstock.job
 where state = 'running'
   and worker is not null
 group by lane, worker, key;

-- name: starts
-- Serves claim, count and why under a rate: what was started lately, of a limit and a key.
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
-- Serves claim, recover and prune: jobs of flows whose time to start is over while they wait. Not
-- locked: that comes after the locks of their flows.
select j.id, j.body
  from penstock.job j
 where j.state = 'waiting'
   and j.expires_at <= %(now)s
 order by j.expires_at
 limit 1000;
