-- Keep a worker alive for another lease.
insert into penstock.worker as w (id, boot, alive_since, alive_until, lease, gone, claimed_at, declared)
values (%(id)s, %(boot)s, %(alive_since)s, %(alive_until)s, %(lease)s, 0, %(claimed_at)s, %(declared)s)
    on conflict (id) do update
   set boot = excluded.boot,
       alive_since = excluded.alive_since,
       alive_until = excluded.alive_until,
       lease = excluded.lease,
       gone = 0,
       claimed_at = coalesce(excluded.claimed_at, w.claimed_at),
       declared = excluded.declared;
