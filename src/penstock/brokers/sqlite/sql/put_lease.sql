-- Serves claim: one row for all that was taken from the parcels of a lane.
insert into penstock_lease (worker, lane, claimed_at, ids, lengths, bodies, marks)
values (?, ?, ?, ?, ?, ?, ?)
returning id;
