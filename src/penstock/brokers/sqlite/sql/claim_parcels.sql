-- Serves claim: the oldest parcels of a lane; the caller stops reading when it has enough.
select id, jobs, lengths, bodies
  from penstock_parcel
 where lane = ?
 order by id;
