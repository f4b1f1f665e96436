-- Measure the queues once a minute, by one process.

-- name: gauge
-- Take this minute, unless somebody was quicker since `before` was read.
insert into penstock_meta (name, value) values ('gauged', :value)
    on conflict (name) do update
   set value = excluded.value
 where value = :before;

-- name: gauged
-- When it was done last, and for which queues; and whether there may be anything to say.
select (select value
          from penstock_meta
         where name = 'gauged') as value,
       exists (select 1 from penstock_tally where jobs <> 0) as holds;

-- name: oldest
-- The first job of each lane that is ready, packed or in a row of its own.
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
