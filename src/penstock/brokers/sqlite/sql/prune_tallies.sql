-- Serves prune: counts that came to nothing.
delete from penstock_tally where jobs = 0;
