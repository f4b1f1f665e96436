-- Serves prune: writes that nobody publishes again.
delete from penstock.published where at < %(before)s;
