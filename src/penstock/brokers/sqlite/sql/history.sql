-- What happened after a position, in the order it was committed.
select *
  from penstock_history
 where position > :after
 order by position
 limit :limit;
