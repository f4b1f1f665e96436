-- What happened.

-- name: history
-- What happened after a position, in the order it was committed.
select *
  from penstock_history
 where position > :after
 order by position
 limit :limit;

-- name: history_of
-- Serves history, for one job.
select *
  from penstock_history
 where job = :job
   and position > :after
 order by position
 limit :limit;

-- name: last
-- The last rows as they stand now, newest first; people do not look for gauges here.
select *
  from penstock_history
 where kind not in ('gauge', 'minute', 'ten_minutes', 'hour')
   and (:kind is null or kind = :kind)
   and position < :before
 order by position desc
 limit :limit;

-- name: last_of
-- Serves history, for one job: its last rows, newest first.
select *
  from penstock_history
 where job = :job
 order by position desc
 limit :limit;

-- name: last_told
-- The last rows of some of the rarer kinds, newest first, out of the last of each. That they are not
-- attempts is said for the planner, which looks for an index before it knows the kinds.
select h.*
  from json_each(:kinds) wanted
 cross join penstock_history h
 where h.position in (select position
                        from penstock_history
                       where kind = wanted.value
                         and kind <> 'attempt'
                         and position < :before
                       order by position desc
                       limit :limit)
 order by h.position desc
 limit :limit;
