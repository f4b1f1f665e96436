-- Serves why: how many jobs of the lane come first, counted up to a bound.
select (select coalesce(sum(jobs), 0)
          from (select jobs from penstock.parcel where lane = %(lane)s and id < %(id)s limit 1000) as before)
     + (select count(*)
          from (select 1
                  from penstock.job
                 where lane = %(lane)s
                   and state = 'ready'
                   and run_at <= %(now)s
                   and id < %(id)s
                 limit 1000) as due) as jobs;
