-- Serves enqueue: what was sent before out of this run of ids. Parcels of a run share all but
-- their last 12 bits, so a range from the run's start to the parcel's last id finds every overlap.
select id, jobs
  from penstock.sent
 where id between %s and %s;
