-- How many jobs stand where, by lane, state and the minute they are due.
select lane, state, minute, sum(jobs)::bigint as jobs
  from penstock.tally
 group by lane, state, minute
having sum(jobs) <> 0;
