-- Serves history: the last rows as they stand now, newest first.
select *
  from penstock.history
 order by position desc
 limit %(limit)s;
