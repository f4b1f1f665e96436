-- Serves cancel and delete of a whole flow: the leases that may hold jobs of a run, about to be
-- marked. The ids of a run begin with the same 14 bytes; the caller checks.
select id, worker, lane, claimed_at, ids, lengths, bodies, marks
  from penstock_lease
 where instr(ids, substr(?, 1, 14)) > 0;
