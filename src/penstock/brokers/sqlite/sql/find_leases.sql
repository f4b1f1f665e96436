-- Serves find: which leases there are, and the ids in them; what they hold is read by lease.sql.
select id, ids from penstock_lease;
