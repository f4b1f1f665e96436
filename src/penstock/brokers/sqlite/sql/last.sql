-- Serves history: the last rows as they stand now, newest first.
select *
  from penstock_history
 order by position desc
 limit :limit;
