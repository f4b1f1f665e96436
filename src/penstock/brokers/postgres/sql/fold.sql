-- Serves upkeep: one row for all that was added to a count, by one process at a time.
with gone as (
    delete from penstock.tally
     where pg_try_advisory_xact_lock(4855284202)
    returning lane, state, minute, jobs
)
insert into penstock.tally (lane, state, minute, jobs)
select lane, state, minute, sum(jobs)
  from gone
 group by lane, state, minute
having sum(jobs) <> 0;
