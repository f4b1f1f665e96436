-- Serves prune: the rows behind a position that are about to go, because no lake holds them any
-- more. By time first, so that only the partitions of old days are looked at.
select count(*) as rows,
       max(h.position) as until
  from penstock.history h
 where h.at < %(past)s
   and h.position > %(known)s
   and (h.keep_until is null or h.keep_until <= %(now)s)
   and not exists (select 1
                     from penstock.mark m
                    where m.position < h.position
                      and h.at >= %(before)s - m.hold);
