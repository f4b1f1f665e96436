-- Serves retry: the nodes that need this one, and are not freed.
select n.id, n.flow
  from penstock.need e
  join penstock.node n on n.id = e.node
 where e.need = %(need)s
   and not n.freed;
