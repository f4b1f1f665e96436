-- Serves prune: where the next rows of the history end, and the first of them that is young enough.
select max(position) as last,
       min(case when at >= :before then position end) as young
  from (
    select position, at
      from penstock_history
     where position > :after
     order by position
     limit :most
 );
