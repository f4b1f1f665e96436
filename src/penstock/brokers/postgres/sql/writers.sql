-- Serves reach: the oldest transaction that is still open, and the next one to begin.
select pg_snapshot_xmin(s)::text::bigint as oldest,
       pg_snapshot_xmax(s)::text::bigint as next
  from pg_current_snapshot() as s;
