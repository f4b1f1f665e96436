-- Serves cancel: the lease that holds a job, about to be marked; as lease_of.
select id, worker, lane, claimed_at, ids, lengths, bodies, marks
  from penstock_lease
 where instr(ids, ?) > 0;
