-- Run after a dump was restored on another server, before workers start there: renumbers positions
-- in the old order. A position holds a transaction number, and the new server has its own numbers.
update penstock.history h
   set position = n.place
  from (select tableoid, ctid, row_number() over (order by position) as place
          from penstock.history) as n
 where h.tableoid = n.tableoid
   and h.ctid = n.ctid;
