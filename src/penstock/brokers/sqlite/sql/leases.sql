-- Serves recover, renew and scan: there are as many rows as claims in flight.
select id, worker, lane, claimed_at, ids, lengths, bodies, marks
  from penstock_lease
 where (:worker is null or worker = :worker)
 order by id;
