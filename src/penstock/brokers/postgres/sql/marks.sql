-- How far lakes have read the history.

-- name: marks
-- Every mark.
select * from penstock.mark;

-- name: mark
-- Serves set_mark and clear_mark: the mark of a lake.
select * from penstock.mark where lake = %s;

-- name: set_mark
-- Keep a mark: one that is new, or in place of the one before.
insert into penstock.mark (lake, position, hold, declared)
values (%(lake)s, %(position)s, %(hold)s, %(declared)s)
    on conflict (lake) do update
   set position = excluded.position,
       hold = excluded.hold,
       declared = excluded.declared;

-- name: clear_mark
-- Forget a lake.
delete from penstock.mark where lake = %s;

-- name: lock_marks
-- Serves set_mark and prune: until the end of the transaction nobody else sets a mark or prunes by
-- marks. Whoever only wants to see them does not wait.
lock table penstock.mark in share row exclusive mode;

-- name: newest
-- Serves set_mark: a position that nobody has come to.
select pg_snapshot_xmax(pg_current_snapshot())::text::bigint << 20 as newest;

-- name: oldest_row
-- Serves set_mark: the first row that was not pruned yet, leaving out what is kept for longer.
select min(position) as position
  from penstock.history
 where keep_until is null;
