-- Serves get and find: the lease that holds a job, found in the packed ids of the claims in
-- flight. A match that is not on a multiple of 16 is not an id; the caller checks.
select id, worker, lane, claimed_at, ids, lengths, bodies, marks
  from penstock_lease
 where instr(ids, ?) > 0;
