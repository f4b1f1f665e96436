-- Serves gauge: the first job of each lane that is ready, packed or in a row of its own.
select l.queue,
       (select p.id
          from penstock_parcel p
         where p.lane = l.hash
         order by p.id
         limit 1) as packed,
       (select j.run_at
          from penstock_job j
         where j.lane = l.hash
           and j.state = 'ready'
         order by j.run_at
         limit 1) as run_at
  from penstock_lane l;
