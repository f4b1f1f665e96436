-- Serves history: the last rows as they stand now, newest first; people do not look
-- for gauges here.
select *
  from penstock_history
 where kind <> 'gauge'
   and (:kind is null or kind = :kind)
   and position < :before
 order by position desc
 limit :limit;
