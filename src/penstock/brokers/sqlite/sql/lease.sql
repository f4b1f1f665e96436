-- Serves find: one lease with what it holds.
select id, worker, lane, claimed_at, ids, lengths, bodies, marks
  from penstock_lease
 where id = ?;
