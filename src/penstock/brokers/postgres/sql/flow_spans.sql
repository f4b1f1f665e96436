-- Serves slices: the ids of a flow's jobs, or of those of one node, from the first to the last.
select m.first, m.last
  from penstock.node n
  join penstock.member m on m.node = n.id
 where (%(flow)s::uuid is null or n.flow = %(flow)s::uuid)
   and (%(node)s::uuid is null or n.id = %(node)s::uuid);
