-- Serves doctor: the newest transaction that the history names, and the next one of this server.
select coalesce(max(position), 0) >> 20 as newest,
       pg_snapshot_xmax(pg_current_snapshot())::text::bigint as next
  from penstock.history;
