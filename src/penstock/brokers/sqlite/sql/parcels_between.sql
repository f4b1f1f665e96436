-- Serves cancel and delete of a whole flow: the parcels that hold jobs of a range, about to be
-- unpacked. The first may begin before it, within its run of ids.
select id, lane, jobs, lengths, bodies
  from penstock_parcel
 where id between :run and :last
 order by id;
