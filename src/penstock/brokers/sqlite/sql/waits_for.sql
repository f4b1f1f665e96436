-- Serves retry: the nodes that need this one, and are not freed.
select n.id, n.flow
  from penstock_need e
  join penstock_node n on n.id = e.node
 where e.need = :need
   and not n.freed;
