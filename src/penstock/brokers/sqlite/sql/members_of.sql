-- Serves cancel, retry and delete: all jobs of a flow.
select m.first, m.last
  from penstock_node n
  join penstock_member m on m.node = n.id
 where n.flow = ?
 order by m.first;
