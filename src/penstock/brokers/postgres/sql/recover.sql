-- Give up workers that are gone.

-- name: recover
-- The workers whose lease ran out. Besides, whoever holds something without being there: it was
-- given up while its claim was under way. Locked, and looked at again by that: one that is back by
-- now keeps what it holds.
with lapsed as (
    select id
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
    select id
      from penstock.worker
     where gone > 0
       and id in (select worker from holding)
     order by id
       for update skip locked
)
select id from lapsed
 union
select id from stranded
 union  -- a worker of which nothing is known
select h.worker
  from holding h
 where not exists (select 1 from penstock.worker w where w.id = h.worker);

-- name: give_up_worker
-- The worker is gone; what it held was settled before.
update penstock.worker set gone = %(now)s, alive_until = 0 where id = %(id)s;
