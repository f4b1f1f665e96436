-- Renew the leases of workers.

-- name: renew
-- Renew leases; see functions/renew.sql.
select lapsed, cancelled from penstock.renew(%s, %s, %s, %s, %s);

-- name: worker
-- Serves claim, renew and recover: one worker.
select boot, alive_since, alive_until, lease, gone from penstock.worker where id = %s;

-- name: held_by
-- Serves recover and renew: the rows that a worker holds.
select * from penstock.job where worker = %s and state = 'running';

-- name: leases
-- Serves recover, renew and scan: the leases of a worker, or all: a row per claim in flight.
select id, worker, lane, claimed_at, penstock.ids_in(firsts, counts) as ids, lengths, bodies, marks, attempt, spared
  from penstock.lease
 where %(worker)s::text is null or worker = %(worker)s
 order by id;
