-- Find jobs, newest first.

-- name: find
-- Jobs that have a row, from the newest id down.
select *
  from penstock.job
 where id < %(below)s
   and (%(lanes)s::text is null
        or lane in (select value::bigint from json_array_elements_text(%(lanes)s::json)))
 order by id desc
 limit %(most)s;

-- name: find_ended
-- As find, for failed and cancelled jobs only: a statement of its own, since the planner uses a partial
-- index only if its condition is written out.
select *
  from penstock.job
 where id < %(below)s
   and state in ('failed', 'cancelled')
   and (%(lanes)s::text is null
        or lane in (select value::bigint from json_array_elements_text(%(lanes)s::json)))
 order by id desc
 limit %(most)s;

-- name: find_succeeded
-- Jobs that succeeded and are kept, from the newest id down.
select *
  from penstock.history
 where job is not null
   and job < %(below)s
   and kind = 'attempt'
   and state = 'succeeded'
   and body is not null
   and (%(lanes)s::text is null
        or lane in (select value::bigint from json_array_elements_text(%(lanes)s::json)))
 order by job desc
 limit %(most)s;

-- name: find_derived
-- Jobs with derived ids that have a row, by the time they were enqueued, newest first.
select *
  from penstock.job
 where id >= 'ff000000-0000-0000-0000-000000000000'
   and (enqueued_at, id) < (%(at)s, %(derived)s)
   and (%(lanes)s::text is null
        or lane in (select value::bigint from json_array_elements_text(%(lanes)s::json)))
 order by enqueued_at desc, id desc
 limit %(most)s;

-- name: find_derived_ended
-- As find_derived, for failed and cancelled jobs only.
select *
  from penstock.job
 where id >= 'ff000000-0000-0000-0000-000000000000'
   and (enqueued_at, id) < (%(at)s, %(derived)s)
   and state in ('failed', 'cancelled')
   and (%(lanes)s::text is null
        or lane in (select value::bigint from json_array_elements_text(%(lanes)s::json)))
 order by enqueued_at desc, id desc
 limit %(most)s;

-- name: find_derived_succeeded
-- Jobs with derived ids that succeeded and are kept, by the time they were enqueued, newest first.
select *
  from penstock.history
 where job >= 'ff000000-0000-0000-0000-000000000000'
   and (enqueued_at, job) < (%(at)s, %(derived)s)
   and kind = 'attempt'
   and state = 'succeeded'
   and body is not null
   and (%(lanes)s::text is null
        or lane in (select value::bigint from json_array_elements_text(%(lanes)s::json)))
 order by enqueued_at desc, job desc
 limit %(most)s;

-- name: find_parcels
-- Parcels from the newest id down; the first may hold ids on both sides of `below`. The primary key
-- begins with the lane: the newest ids of each lane are merged, and only those parcels are read.
select p.id, p.lane, p.jobs, p.lengths, p.bodies, p.attempt, p.spared
  from (
    select newest.lane, newest.id
      from penstock.lane l,
           lateral (
               select p.lane, p.id
                 from penstock.parcel p
                where p.lane = l.hash
                  and p.id < %(below)s
                order by p.id desc
                limit %(most)s
           ) as newest
     where %(lanes)s::text is null
        or l.hash in (select value::bigint from json_array_elements_text(%(lanes)s::json))
     order by newest.id desc
     limit %(most)s
  ) as best
  join penstock.parcel p on p.lane = best.lane and p.id = best.id
 order by p.id desc;

-- name: find_leases
-- All leases with the first ids of their parcels; their contents are read by `lease`.
select id, firsts as ids from penstock.lease;

-- name: lease
-- One lease with its contents.
select id, worker, lane, claimed_at, penstock.ids_in(firsts, counts) as ids, lengths, bodies, marks, attempt, spared
  from penstock.lease
 where id = %s;

-- name: find_tagged
-- The jobs with a tag or an indexed argument field, from the newest id down.
select found.job
  from json_array_elements_text(%(values)s::json) as wanted (value),
       lateral (
           select t.job
             from penstock.tag t
            where t.name = %(name)s
              and t.value = wanted.value
              and t.job < %(below)s
            order by t.job desc
            limit %(most)s
       ) as found
 order by found.job desc
 limit %(most)s;

-- name: tagged_derived
-- How many jobs with derived ids have a tag; counted up to `most` for each value.
select count(*) as jobs
  from json_array_elements_text(%(values)s::json) as wanted (value),
       lateral (
           select 1
             from penstock.tag t
            where t.name = %(name)s
              and t.value = wanted.value
              and t.job >= 'ff000000-0000-0000-0000-000000000000'
            limit %(most)s
       ) as found;

-- name: find_tagged_derived
-- The jobs with derived ids that have a tag, by the time they were enqueued, newest first. All of them are
-- looked up and sorted, so this is for tags of few such jobs.
with tagged as materialized (
    select found.job
      from json_array_elements_text(%(values)s::json) as wanted (value),
           lateral (
               select t.job
                 from penstock.tag t
                where t.name = %(name)s
                  and t.value = wanted.value
                  and t.job >= 'ff000000-0000-0000-0000-000000000000'
               offset 0
           ) as found
)
select found.job, found.enqueued_at
  from (
    select j.id as job, j.enqueued_at
      from tagged
      join penstock.job j on j.id = tagged.job
     union
    select h.job, h.enqueued_at
      from tagged
      join penstock.history h on h.job = tagged.job
     where h.kind = 'attempt'
       and h.state = 'succeeded'
       and h.body is not null
  ) as found
 where (found.enqueued_at, found.job) < (%(at)s, %(derived)s)
 order by found.enqueued_at desc, found.job desc
 limit %(most)s;

-- name: lanes
-- All lanes, to choose those that a filter may match.
select hash, app, queue, task, search from penstock.lane;
