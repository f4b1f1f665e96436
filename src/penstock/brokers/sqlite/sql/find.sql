-- Find jobs, newest first.

-- name: find
-- Jobs that have a row, from the newest id down.
select *
  from penstock_job
 where id < :below
   and (:lanes is null or lane in (select value from json_each(:lanes)))
 order by id desc
 limit :most;

-- name: find_ended
-- Serves find, when only failed and cancelled ones are asked for.
select *
  from penstock_job
 where id < :below
   and state in ('failed', 'cancelled')
   and (:lanes is null or lane in (select value from json_each(:lanes)))
 order by id desc
 limit :most;

-- name: find_succeeded
-- Jobs that succeeded and are kept, from the newest id down.
select *
  from penstock_history
 where job is not null
   and job < :below
   and kind = 'attempt'
   and state = 'succeeded'
   and body is not null
   and (:lanes is null or lane in (select value from json_each(:lanes)))
 order by job desc
 limit :most;

-- name: find_derived
-- Jobs with derived ids that have a row, the last that was enqueued first.
select *
  from penstock_job
 where id >= x'ff000000000000000000000000000000'
   and (enqueued_at, id) < (:at, :derived)
   and (:lanes is null or lane in (select value from json_each(:lanes)))
 order by enqueued_at desc, id desc
 limit :most;

-- name: find_derived_ended
-- Serves find, as find_derived, when only failed and cancelled ones are asked for.
select *
  from penstock_job
 where id >= x'ff000000000000000000000000000000'
   and (enqueued_at, id) < (:at, :derived)
   and state in ('failed', 'cancelled')
   and (:lanes is null or lane in (select value from json_each(:lanes)))
 order by enqueued_at desc, id desc
 limit :most;

-- name: find_derived_succeeded
-- Jobs with derived ids that succeeded and are kept, the last that was enqueued first.
select *
  from penstock_history
 where job >= x'ff000000000000000000000000000000'
   and (enqueued_at, job) < (:at, :derived)
   and kind = 'attempt'
   and state = 'succeeded'
   and body is not null
   and (:lanes is null or lane in (select value from json_each(:lanes)))
 order by enqueued_at desc, job desc
 limit :most;

-- name: find_parcels
-- Parcels from the newest id down; the first may hold ids on both sides of `below`.
select id, lane, jobs, lengths, bodies, attempt, spared
  from penstock_parcel
 where id < :below
   and (:lanes is null or lane in (select value from json_each(:lanes)))
 order by id desc
 limit :most;

-- name: find_leases
-- Which leases there are, and the ids in them; what they hold is read by lease.
select id, ids from penstock_lease;

-- name: lease
-- One lease with what it holds.
select id, worker, lane, claimed_at, ids, lengths, bodies, marks, attempt, spared
  from penstock_lease
 where id = ?;

-- name: find_tagged
-- The jobs with a tag, or with an argument declared for search, from the newest id down.
select job
  from penstock_tag
 where name = :name
   and value in (select value from json_each(:values))
   and job < :below
 order by job desc
 limit :most;

-- name: tagged_derived
-- How many jobs with derived ids have a tag; no more than `most` are counted.
select count(*) as jobs
  from (
    select 1
      from penstock_tag
     where name = :name
       and value in (select value from json_each(:values))
       and job >= x'ff000000000000000000000000000000'
     limit :most
  );

-- name: find_tagged_derived
-- The jobs with derived ids among those with a tag, the last that was enqueued first. A tag holds
-- no time: all of them are looked up, which is for a tag that has few.
select job, enqueued_at
  from (
    select j.id as job, j.enqueued_at
      from penstock_tag t
      join penstock_job j on j.id = t.job
     where t.name = :name
       and t.value in (select value from json_each(:values))
       and t.job >= x'ff000000000000000000000000000000'
     union
    select h.job, h.enqueued_at
      from penstock_tag t
      join penstock_history h on h.job = t.job
     where t.name = :name
       and t.value in (select value from json_each(:values))
       and t.job >= x'ff000000000000000000000000000000'
       and h.kind = 'attempt'
       and h.state = 'succeeded'
       and h.body is not null
  )
 where (enqueued_at, job) < (:at, :derived)
 order by enqueued_at desc, job desc
 limit :most;

-- name: lanes
-- The lanes, to narrow down where to look.
select hash, app, queue, task, search from penstock_lane;
