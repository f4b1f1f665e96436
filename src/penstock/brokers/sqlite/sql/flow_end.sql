-- Serves settle: what the history says of a flow that ended.
select f.name, f.find, sum(n.jobs) as jobs, sum(n.bad) as bad
  from penstock_flow f
  join penstock_node n on n.flow = f.id
 where f.id = :id
 group by f.id, f.name, f.find;
