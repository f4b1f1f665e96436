-- Serves settle, note and begin: what is still held of a lease.
select marks, worker, claimed_at, lane from penstock.lease where id = %s for update;
