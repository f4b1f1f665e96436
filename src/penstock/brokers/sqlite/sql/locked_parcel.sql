-- Serves cancel and delete: the parcel that would hold an id, about to be unpacked; as parcel_before.
select id, lane, jobs, lengths, bodies
  from penstock_parcel
 where id between ? and ?
 order by id desc
 limit 1;
