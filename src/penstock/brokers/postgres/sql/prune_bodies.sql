-- Serves prune: arguments and results whose own time is over; that they ran stays recorded.
update penstock.history h
   set body = null, result = null, keep_until = null
  from (
    select tableoid, ctid
      from penstock.history
     where keep_until <= %(now)s
     limit %(most)s
 ) as old
 where h.tableoid = old.tableoid
   and h.ctid = old.ctid;
