-- Serves enqueue: plain ready jobs, packed.
insert into penstock_parcel (id, lane, jobs, lengths, bodies) values (?, ?, ?, ?, ?);
