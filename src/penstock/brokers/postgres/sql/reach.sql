-- How far the history goes behind a position, below the oldest transaction that is still open; and
-- where the given number of wanted rows is full.
select (select h.position
          from penstock.history h
         where h.position > %(after)s
           and h.position < %(safe)s
         order by h.position desc
         limit 1) as last,
       (select h.position
          from penstock.history h
         where h.position > %(after)s
           and h.position < %(safe)s
           and (h.kind = %(kind)s::text
                or (%(kind)s::text is null and h.kind not in ('attempt', 'gauge')))
           and %(rows)s::bigint is not null
         order by h.position
        offset coalesce(%(rows)s::bigint, 1) - 1
         limit 1) as "full";
