-- The workers whose lease ran out, or that ran before this boot.
select id
  from penstock_worker
 where gone = 0
   and (boot <> :boot or alive_until <= :lease_time);
