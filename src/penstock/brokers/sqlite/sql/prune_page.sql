-- Serves prune: where the next rows of the history end, and the first of them that stays: because it
-- is young enough, or because a lake has it not yet.
select max(position) as last,
       min(case when at >= :before
                  or exists (select 1
                               from penstock_mark m
                              where m.position < h.position
                                and h.at >= :before - m.hold)
                then position end) as stays
  from (
    select position, at
      from penstock_history
     where position > :after
     order by position
     limit :most
 ) h;
