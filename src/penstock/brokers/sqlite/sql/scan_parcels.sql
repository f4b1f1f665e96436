-- Serves scan: parcels of a span of ids, and the one before that may reach into it.
select id, lane, jobs, lengths, bodies
  from penstock_parcel
 where id >= :first
   and id <= :until;
