-- Keep workers alive.

-- name: renew
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

-- name: worker
-- Serves claim, renew and recover: a worker as it stands.
select boot, alive_since, alive_until, lease, gone from penstock_worker where id = ?;

-- name: held_by
-- Serves recover and renew: the rows that a worker holds.
select * from penstock_job where worker = ? and state = 'running';

-- name: cancelled_rows
-- What a worker holds that somebody asked to cancel.
select id from penstock_job where worker = ? and state = 'running' and cancelled = 1;

-- name: leases
-- Serves recover, renew and scan: there are as many rows as claims in flight.
select id, worker, lane, claimed_at, ids, lengths, bodies, marks, attempt, spared
  from penstock_lease
 where (:worker is null or worker = :worker)
 order by id;
