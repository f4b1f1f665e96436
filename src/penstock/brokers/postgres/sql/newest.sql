-- Serves set_mark: a position that nobody has come to.
select pg_snapshot_xmax(pg_current_snapshot())::text::bigint << 20 as newest;
