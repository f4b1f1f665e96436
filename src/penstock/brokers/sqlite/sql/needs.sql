-- Serves flow: what each of its nodes needs, in the order it was told.
select e.node, e.need
  from penstock_node n
  join penstock_need e on e.node = n.id
 where n.flow = ?
 order by e.node, e.place;
