-- Serves publish: how many jobs each part of a write holds.
select part, sum(jobs)::bigint as jobs
  from penstock.staged
 where write = %s
 group by part;
