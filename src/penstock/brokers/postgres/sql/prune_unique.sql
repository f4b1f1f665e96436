-- Serves prune: keys whose time is over.
delete from penstock.unique_key where expires_at <= %(now)s;
