-- Serves why: how many jobs of the lane come first, counted up to a bound.
select (select coalesce(sum(jobs), 0)
          from (select jobs from penstock_parcel where lane = :lane and id < :id limit 1000))
     + (select count(*)
          from (select 1
                  from penstock_job
                 where lane = :lane
                   and state = 'ready'
                   and run_at <= :now
                   and id < :id
                 limit 1000)) as jobs;
