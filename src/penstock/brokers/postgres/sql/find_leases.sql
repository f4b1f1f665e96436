-- Serves find: which leases there are, and where their ids begin; what they hold is read by lease.sql.
select id, firsts as ids from penstock.lease;
