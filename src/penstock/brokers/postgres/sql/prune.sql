-- Forget old rows of the history that every lake has, but for what is to be kept longer.
delete from penstock.history h
 using (
    select tableoid, ctid
      from penstock.history
     where at < %(before)s
       and position <= %(lowest)s
       and (keep_until is null or keep_until <= %(now)s)
     limit %(most)s
 ) as old
 where h.tableoid = old.tableoid
   and h.ctid = old.ctid;
