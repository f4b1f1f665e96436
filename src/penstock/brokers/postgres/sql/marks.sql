-- How far lakes have read the history.

-- name: marks
-- Every mark.
select * from penstock.mark;

-- name: mark
-- Serves put and clear: the mark of one lake.
select * from penstock.mark where lake = %s;

-- name: set_mark
-- Store a mark, new or changed.
insert into penstock.mark (lake, position, hold, declared)
values (%(lake)s, %(position)s, %(hold)s, %(declared)s)
    on conflict (lake) do update
   set position = excluded.position,
       hold = excluded.hold,
       declared = excluded.declared;

-- name: clear_mark
-- Delete a mark.
delete from penstock.mark where lake = %s;

-- name: lock_marks
-- Serves put and prune: until the commit nobody else changes a mark or prunes by marks. Reading marks does
-- not wait for this.
lock table penstock.mark in share row exclusive mode;

-- name: newest
-- Serves put: a position above all rows.
select pg_snapshot_xmax(pg_current_snapshot())::text::bigint << 20 as newest;

-- name: oldest_row
-- Serves put: the first row that was not pruned, without rows that are kept longer.
select min(position) as position
  from penstock.history
 where keep_until is null;
