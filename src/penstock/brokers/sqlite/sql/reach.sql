-- How far the history goes behind a position, and where the given number of wanted rows is full;
-- and the last position that there ever was.
select (select seq
          from sqlite_sequence
         where name = 'penstock_history') as newest,
       (select max(position)
          from penstock_history
         where position > :after) as last,
       (select position
          from penstock_history
         where position > :after
           and (kind = :kind or (:kind is null and kind not in ('attempt', 'gauge')))
           and :rows is not null
         order by position
         limit 1 offset coalesce(:rows, 1) - 1) as full;
