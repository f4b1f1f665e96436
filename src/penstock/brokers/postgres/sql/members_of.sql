-- Serves cancel, retry and delete: all jobs of a flow.
select m.first, m.last
  from penstock.node n
  join penstock.member m on m.node = n.id
 where n.flow = %s
 order by m.first;
