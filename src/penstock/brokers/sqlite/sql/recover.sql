-- Give up workers that are gone.

-- name: recover
-- The workers whose lease ran out, or that ran before this boot.
select id, declared
  from penstock_worker
 where gone = 0
   and (boot <> :boot or alive_until <= :lease_time);

-- name: give_up_worker
-- The worker is gone; what it held was settled before.
update penstock_worker set gone = :now, alive_until = 0 where id = :id;
