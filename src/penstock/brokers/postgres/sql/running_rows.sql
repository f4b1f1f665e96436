-- Serves claim, count and why under a limit: the rows that run, by who holds them and by key.
select lane, worker, key, count(*) as jobs
  from penstock.job
 where state = 'running'
   and worker is not null
 group by lane, worker, key;
