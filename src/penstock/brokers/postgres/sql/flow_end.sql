-- Serves settle: what the history says of a flow that ended.
select f.name, f.find, sum(n.jobs)::bigint as jobs, sum(n.bad)::bigint as bad
  from penstock.flow f
  join penstock.node n on n.flow = f.id
 where f.id = %(id)s
 group by f.id, f.name, f.find;
