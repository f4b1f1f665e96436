-- Give up workers whose lease has run out.

-- name: recover
-- The workers whose lease has run out; and workers that were given up before, but hold jobs of a claim
-- that was under way at that time. The lock checks their row again: a worker that has renewed meanwhile
-- keeps its jobs.
with lapsed as (
    select id, declared
      from penstock.worker
     where gone = 0
       and alive_until <= %(lease_time)s
     order by id
       for update skip locked
),
holding as materialized (
    select worker from penstock.lease
     union
    select worker from penstock.job where state = 'running'
),
stranded as (
    select id, declared
      from penstock.worker
     where gone > 0
       and id in (select worker from holding)
     order by id
       for update skip locked
)
select id, declared from lapsed
 union all
select id, declared from stranded
 union all  -- workers that have no row
select h.worker, null
  from holding h
 where not exists (select 1 from penstock.worker w where w.id = h.worker);

-- name: give_up_worker
-- Give a worker up; what it held was settled before.
update penstock.worker set gone = %(now)s, alive_until = 0 where id = %(id)s;
