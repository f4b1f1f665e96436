-- Serves slices of much: positions that cut a span of the history into parts of about as many rows. A
-- few hundred pages, chosen by chance, say where: to count all rows takes a tenth as long as to read.
with seen as (
    select h.position
      from penstock.history h tablesample system (%(percent)s)
     where h.position > %(after)s
       and h.position <= %(until)s
)
select s.position
  from (select position,
               row_number() over (order by position) as place,
               count(*) over () as total
          from seen) as s
 where s.place * %(parts)s / s.total > (s.place - 1) * %(parts)s / s.total;
