-- Serves prune: old rows that not every lake has, and that none holds any more. By time first, so
-- that what is held for days is not read again by every prune.
delete from penstock.history h
 using (
    select o.tableoid, o.ctid
      from penstock.history o
     where o.at < %(past)s
       and o.position > %(lowest)s
       and (o.keep_until is null or o.keep_until <= %(now)s)
       and not exists (select 1
                         from penstock.mark m
                        where m.position < o.position
                          and o.at >= %(before)s - m.hold)
     limit %(most)s
 ) as old
 where h.tableoid = old.tableoid
   and h.ctid = old.ctid;
