-- Serves prune: workers that were given up.
delete from penstock_worker where gone = 1;
