-- Keep a worker alive for another lease.
insert into penstock_worker (id, boot, alive_since, alive_until, lease, gone, claimed_at, declared)
values (:id, :boot, :alive_since, :alive_until, :lease, 0, :claimed_at, :declared)
    on conflict (id) do update
   set boot = excluded.boot,
       alive_since = excluded.alive_since,
       alive_until = excluded.alive_until,
       lease = excluded.lease,
       gone = 0,
       claimed_at = coalesce(excluded.claimed_at, claimed_at),
       declared = excluded.declared;
