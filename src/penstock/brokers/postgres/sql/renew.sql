-- Keep workers alive.

-- name: renew
-- Keep workers alive for another lease; see functions/renew.sql.
select lapsed, cancelled from penstock.renew(%s, %s, %s, %s, %s);

-- name: worker
-- Serves claim, renew and recover: a worker as it stands.
select boot, alive_since, alive_until, lease, gone from penstock.worker where id = %s;

-- name: held_by
-- Serves recover and renew: the rows that a worker holds.
select * from penstock.job where worker = %s and state = 'running';

-- name: leases
-- Serves recover, renew and scan: there are as many rows as claims in flight.
select id, worker, lane, claimed_at, penstock.ids_in(firsts, counts) as ids, lengths, bodies, marks
  from penstock.lease
 where %(worker)s::text is null or worker = %(worker)s
 order by id;
