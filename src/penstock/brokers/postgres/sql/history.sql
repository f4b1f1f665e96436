-- What happened.

-- name: history
-- What happened after a position, in the order of positions, up to the oldest transaction that is
-- still open: what that one may yet commit comes before anything behind it. `safe` says which rows
-- are below it, so that the caller may wait a moment for the others.
select h.*, h.position < (pg_snapshot_xmin(pg_current_snapshot())::text::bigint << 20) as safe
  from penstock.history h
 where h.position > %(after)s
 order by h.position
 limit %(limit)s;

-- name: history_of
-- Serves history, for one job.
select *
  from penstock.history
 where job = %(job)s
   and position > %(after)s
 order by position
 limit %(limit)s;

-- name: last
-- The last rows as they stand now, newest first; people do not look for gauges here.
select *
  from penstock.history
 where kind <> 'gauge'
   and (%(kind)s::text is null or kind = %(kind)s::text)
   and position < %(before)s
 order by position desc
 limit %(limit)s;

-- name: last_of
-- Serves history, for one job: its last rows, newest first.
select *
  from penstock.history
 where job = %(job)s
 order by position desc
 limit %(limit)s;

-- name: last_told
-- The last rows of some of the rarer kinds, newest first, out of the last of each. That they are not
-- attempts is said for the planner, which looks for an index before it knows the kinds.
select h.*
  from json_array_elements_text(%(kinds)s::json) as wanted (kind)
 cross join lateral (select *
                       from penstock.history
                      where kind = wanted.kind
                        and kind <> 'attempt'
                        and position < %(before)s
                      order by position desc
                      limit %(limit)s) as h
 order by h.position desc
 limit %(limit)s;

-- name: written
-- How far the server's log is written.
select pg_current_wal_insert_lsn()::text as written;

-- name: flush
-- A commit that waits for the disk, and so for all before it.
select pg_logical_emit_message(true, 'penstock', '');

-- name: flushed
-- Whether that is on the disk.
select pg_current_wal_flush_lsn() >= %(written)s::pg_lsn as flushed;
