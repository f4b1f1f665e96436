-- Read the history.

-- name: history
-- Rows after a position, in the order of positions. `safe`: the row is below the oldest open transaction,
-- so no row can appear before it any more. The caller waits a moment for the others.
select h.*, h.position < (pg_snapshot_xmin(pg_current_snapshot())::text::bigint << 20) as safe
  from penstock.history h
 where h.position > %(after)s
 order by h.position
 limit %(limit)s;

-- name: history_of
-- The rows of one job after a position.
select *
  from penstock.history
 where job = %(job)s
   and position > %(after)s
 order by position
 limit %(limit)s;

-- name: last
-- The last rows, newest first, without gauges; for people.
select *
  from penstock.history
 where kind not in ('gauge', 'minute', 'ten_minutes', 'hour')
   and (%(kind)s::text is null or kind = %(kind)s::text)
   and position < %(before)s
 order by position desc
 limit %(limit)s;

-- name: last_of
-- The last rows of one job, newest first.
select *
  from penstock.history
 where job = %(job)s
 order by position desc
 limit %(limit)s;

-- name: last_told
-- The last rows of some of the rarer kinds, newest first: the last of each kind, merged. `kind <> 'attempt'`
-- is the condition of the partial index, which the planner must see written out.
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
-- How far the WAL is written; null on a standby, which has only what its primary has flushed.
select case when not pg_is_in_recovery()
            then pg_current_wal_insert_lsn()::text end as written;

-- name: flush
-- A commit that waits for the disk, and so flushes all WAL before it.
select pg_logical_emit_message(true, 'penstock', '');

-- name: flushed
-- Whether the WAL is flushed up to there.
select pg_current_wal_flush_lsn() >= %(written)s::pg_lsn as flushed;
