-- Serves cancel and delete of a whole flow: the leases that may hold jobs of a run, about to be
-- marked; as locked_lease.
select id, worker, lane, claimed_at, penstock.ids_in(firsts, counts) as ids, lengths, bodies, marks
  from penstock.lease
 where position(substr(%s::bytea, 1, 14) in firsts) > 0
 order by id
   for update;
