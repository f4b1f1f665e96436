-- Serves publish: how many jobs a write has.
select jobs from penstock.published where write = %s;
