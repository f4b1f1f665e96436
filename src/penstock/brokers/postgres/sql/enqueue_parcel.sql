-- Serves cancel and delete: what is left of a parcel.
insert into penstock.parcel (id, lane, jobs, lengths, bodies) values (%s, %s, %s, %s, %s);
