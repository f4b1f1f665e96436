-- Serves history: the last rows of one of the rarer kinds, newest first. That it is not an attempt
-- is said for the planner, which looks for an index before it knows the kind.
select *
  from penstock_history
 where kind = :kind
   and kind <> 'attempt'
   and position < :before
 order by position desc
 limit :limit;
