-- Serves flow: what each of its nodes needs, in the order it was told.
select e.node, e.need
  from penstock.node n
  join penstock.need e on e.node = n.id
 where n.flow = %s
 order by e.node, e.place;
