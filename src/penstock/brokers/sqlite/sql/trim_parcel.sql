-- Serves claim: the rest of a parcel, keyed by its first job.
update penstock_parcel
   set id = ?, jobs = ?, lengths = ?, bodies = ?
 where id = ?;
