-- Serves retry: of each node of a flow, how many jobs that ended without success are still there.
select m.node, count(*) as jobs
  from penstock.node n
  join penstock.member m on m.node = n.id,
       lateral (
           select j.id
             from penstock.job j
            where j.id between m.first and m.last
              and j.state in ('failed', 'cancelled')
           offset 0  -- so that each range is looked up, whatever the planner thinks of the table
       ) as kept
 where n.flow = %s
   and n.bad > 0
 group by m.node;
