-- Serves workers, and claim, count and why under a limit: what is held out of parcels, a row per claim in flight.
select lane, worker, marks from penstock.lease;
