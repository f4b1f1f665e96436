-- Serves prune: workers that were given up long ago.
delete from penstock.worker where gone > 0 and gone < %(before)s;
