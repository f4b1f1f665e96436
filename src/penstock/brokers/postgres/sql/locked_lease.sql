-- Serves cancel: the leases that may hold a job, one of them about to be marked; as lease_of.
select id, worker, lane, claimed_at, penstock.ids_in(firsts, counts) as ids, lengths, bodies, marks
  from penstock.lease
 where position(substr(%s::bytea, 1, 14) in firsts) > 0
 order by id
   for update;
