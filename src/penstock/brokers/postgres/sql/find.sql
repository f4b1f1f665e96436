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
-- Serves find, when only failed and cancelled ones are asked for.
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
-- Jobs with derived ids that have a row, the last that was enqueued first.
select *
  from penstock.job
 where id >= 'ff000000-0000-0000-0000-000000000000'
   and (enqueued_at, id) < (%(at)s, %(derived)s)
   and (%(lanes)s::text is null
        or lane in (select value::bigint from json_array_elements_text(%(lanes)s::json)))
 order by enqueued_at desc, id desc
 limit %(most)s;

-- name: find_derived_ended
-- Serves find, as find_derived, when only failed and cancelled ones are asked for.
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
-- Jobs with derived ids that succeeded and are kept, the last that was enqueued first.
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
-- Parcels from the newest id down; the first may hold ids on both sides of `below`. Their key
-- begins with the lane, so each lane gives its newest and the best of them are read.
select p.id, p.lane, p.jobs, p.lengths, p.bodies
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
-- Which leases there are, and where their ids begin; what they hold is read by lease.
select id, firsts as ids from penstock.lease;

-- name: lease
-- One lease with what it holds.
select id, worker, lane, claimed_at, penstock.ids_in(firsts, counts) as ids, lengths, bodies, marks
  from penstock.lease
 where id = %s;

-- name: find_tagged
-- The jobs with a tag, or with an argument declared for search, from the newest id down.
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
-- How many jobs with derived ids have a tag; of each value no more than `most` are counted.
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
-- The jobs with derived ids among those with a tag, the last that was enqueued first. A tag holds
-- no time: all of them are looked up, which is for a tag that has few.
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
-- The lanes, to narrow down where to look.
select hash, app, queue, task, search from penstock.lane;
