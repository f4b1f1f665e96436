-- Serves publish: how many jobs a write has.
select jobs from penstock_published where write = ?;
