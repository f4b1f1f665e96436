-- Serves slices: positions that cut a span of the history into parts of as many rows.
select s.position
  from (select h.position,
               row_number() over (order by h.position) as place,
               count(*) over () as total
          from penstock.history h
         where h.position > %(after)s
           and h.position <= %(until)s) as s
 where s.place * %(parts)s / s.total > (s.place - 1) * %(parts)s / s.total;
