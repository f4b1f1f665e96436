-- Serves history: the last rows as they stand now, newest first; people do not look
-- for gauges here.
select *
  from penstock_history
 where kind <> 'gauge'
 order by position desc
 limit :limit;
