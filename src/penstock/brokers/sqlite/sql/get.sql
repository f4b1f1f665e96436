-- Find one job, wherever it is.

-- name: get
-- The job's own row.
select * from penstock_job where id = ?;

-- name: lease_of
-- Serves get and find: the lease that holds a job, found in the packed ids of the claims in
-- flight. A match that is not on a multiple of 16 is not an id; the caller checks.
select id, worker, lane, claimed_at, ids, lengths, bodies, marks, attempt, spared
  from penstock_lease
 where instr(ids, ?) > 0;

-- name: parcel_before
-- Serves get, find and why: the parcel that would hold an id is the last one that starts at
-- or before it, within its run of ids.
select id, lane, jobs, lengths, bodies, attempt, spared
  from penstock_parcel
 where id between ? and ?
 order by id desc
 limit 1;

-- name: succeeded
-- A job that succeeded lives in its last history row, while its body is kept.
select *
  from penstock_history
 where job = ?
   and kind = 'attempt'
   and state = 'succeeded'
   and body is not null
 order by position desc
 limit 1;

-- name: lane
-- Serves every verb that shows a lane as the words it stands for.
select app, queue, task, version, priority, runs_on, search from penstock_lane where hash = ?;
