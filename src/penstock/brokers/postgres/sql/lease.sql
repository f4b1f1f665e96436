-- Serves find: one lease with what it holds.
select id, worker, lane, claimed_at, penstock.ids_in(firsts, counts) as ids, lengths, bodies, marks
  from penstock.lease
 where id = %s;
