-- Serves prune: batches nobody goes on with.
delete from penstock_batch where at < :before;
