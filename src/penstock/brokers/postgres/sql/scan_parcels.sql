-- Serves scan: parcels of a span of ids, and the one before that may reach into it. Lane by lane, as
-- their index goes.
select p.id, p.lane, p.jobs, p.lengths, p.bodies
  from penstock.lane l
  join penstock.parcel p on p.lane = l.hash
 where p.id >= %(first)s
   and p.id <= %(until)s;
