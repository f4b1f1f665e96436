-- Serves recover, renew and scan: there are as many rows as claims in flight.
select id, worker, lane, claimed_at, penstock.ids_in(firsts, counts) as ids, lengths, bodies, marks
  from penstock.lease
 where %(worker)s::text is null or worker = %(worker)s
 order by id;
