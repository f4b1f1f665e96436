-- Serves prune: batches nobody goes on with.
delete from penstock.batch where at < %(before)s;
