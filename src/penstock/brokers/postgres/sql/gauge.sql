-- Measure the queues once a minute, by one process.

-- name: gauge
-- Take this minute, unless somebody was quicker since `before` was read: whoever comes second waits
-- for the first one's commit, and then finds another value.
insert into penstock.meta as m (name, value) values ('gauged', %(value)s)
    on conflict (name) do update
   set value = excluded.value
 where m.value = %(before)s;

-- name: gauged
-- When it was done last, and for which queues; and whether there may be anything to say.
select (select value
          from penstock.meta
         where name = 'gauged') as value,
       exists (select 1 from penstock.parcel)
       or exists (select 1 from penstock.lease)
       or exists (select 1 from penstock.job) as holds;

-- name: oldest
-- The first job of each lane that is ready, packed or in a row of its own.
select l.queue,
       (select p.id
          from penstock.parcel p
         where p.lane = l.hash
         order by p.id
         limit 1) as packed,
       (select j.run_at
          from penstock.job j
         where j.lane = l.hash
           and j.state = 'ready'
         order by j.run_at
         limit 1) as run_at
  from penstock.lane l;
