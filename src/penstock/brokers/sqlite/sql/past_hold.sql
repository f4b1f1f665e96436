-- Serves prune: the rows behind a position that are about to go, because no lake holds them any
-- more. As they go, in order, up to the first that stays.
select count(*) as rows,
       max(position) as until
  from penstock_history
 where position > :known
   and position < coalesce(
        (select h.position
           from penstock_history h
          where h.position > :known
            and exists (select 1
                          from penstock_mark m
                         where m.position < h.position
                           and h.at >= :before - m.hold)
          order by h.position
          limit 1), 9223372036854775807)
   and (keep_until is null or keep_until <= :now);
