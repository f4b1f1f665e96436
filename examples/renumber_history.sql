-- After a dump was restored on another server, before workers start there: positions anew, in the
-- old order. A position holds the number of a transaction, and another server counts its own.
update penstock.history h
   set position = n.place
  from (select tableoid, ctid, row_number() over (order by position) as place
          from penstock.history) as n
 where h.tableoid = n.tableoid
   and h.ctid = n.ctid;
