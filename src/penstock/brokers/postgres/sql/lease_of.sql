-- Serves get and find: the leases that may hold a job, found by its run of ids; the caller checks.
select id, worker, lane, claimed_at, penstock.ids_in(firsts, counts) as ids, lengths, bodies, marks
  from penstock.lease
 where position(substr(%s::bytea, 1, 14) in firsts) > 0;
