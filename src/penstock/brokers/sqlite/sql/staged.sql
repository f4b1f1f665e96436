-- Serves publish: how many jobs each part of a write holds.
select part, sum(jobs) as jobs
  from penstock_staged
 where write = ?
 group by part;
