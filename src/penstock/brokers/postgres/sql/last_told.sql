-- Serves history: the last rows of one of the rarer kinds, newest first. That it is not an attempt
-- is said for the planner, which looks for an index before it knows the kind.
select *
  from penstock.history
 where kind = %(kind)s
   and kind <> 'attempt'
   and position < %(before)s
 order by position desc
 limit %(limit)s;
