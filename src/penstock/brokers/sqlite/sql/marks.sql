-- How far lakes have read the history.

-- name: marks
-- Every mark.
select * from penstock_mark;

-- name: mark
-- Serves set_mark and clear_mark: the mark of a lake.
select * from penstock_mark where lake = ?;

-- name: set_mark
-- Keep a mark: one that is new, or in place of the one before.
insert into penstock_mark (lake, position, hold, declared)
values (:lake, :position, :hold, :declared)
    on conflict (lake) do update
   set position = excluded.position,
       hold = excluded.hold,
       declared = excluded.declared;

-- name: clear_mark
-- Forget a lake.
delete from penstock_mark where lake = ?;

-- name: lock_marks
-- Serves set_mark and prune: nothing to do, there is one writer at a time.
select 1;

-- name: newest
-- Serves set_mark: the last position that there ever was.
select coalesce((select seq
                   from sqlite_sequence
                  where name = 'penstock_history'), 0) as newest;

-- name: oldest_row
-- Serves set_mark: the first row that was not pruned yet, leaving out what is kept for longer.
select min(position) as position
  from penstock_history
 where keep_until is null;
