-- What happened after a position, in the order of positions, up to the oldest transaction that is
-- still open: what that one may yet commit comes before anything behind it. `safe` says which rows
-- are below it, so that the caller may wait a moment for the others.
select h.*, h.position < (pg_snapshot_xmin(pg_current_snapshot())::text::bigint << 20) as safe
  from penstock.history h
 where h.position > %(after)s
 order by h.position
 limit %(limit)s;
