-- Serves prune: keys whose time is over.
delete from penstock_unique where expires_at <= :now;
