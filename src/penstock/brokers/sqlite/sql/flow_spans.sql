-- Serves slices: the ids of a flow's jobs, or of those of one node, from the first to the last.
select m.first, m.last
  from penstock_node n
  join penstock_member m on m.node = n.id
 where (:flow is null or n.flow = :flow)
   and (:node is null or n.id = :node);
