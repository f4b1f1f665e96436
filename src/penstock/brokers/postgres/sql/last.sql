-- Serves history: the last rows as they stand now, newest first; people do not look
-- for gauges here.
select *
  from penstock.history
 where kind <> 'gauge'
   and (%(kind)s::text is null or kind = %(kind)s::text)
   and position < %(before)s
 order by position desc
 limit %(limit)s;
