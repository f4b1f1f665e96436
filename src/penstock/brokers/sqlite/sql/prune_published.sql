-- Serves prune: writes that nobody publishes again.
delete from penstock_published where at < :before;
