-- Serves retry: of each node of a flow, how many jobs that ended without success are still there.
-- Joined in this order: the planner may think that going through all jobs is as good.
select m.node, count(*) as jobs
  from penstock_node n
 cross join penstock_member m on m.node = n.id
 cross join penstock_job j on j.id between m.first and m.last
 where n.flow = ?
   and n.bad > 0
   and j.state in ('failed', 'cancelled')
 group by m.node;
