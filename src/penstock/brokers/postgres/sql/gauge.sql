-- Measure the queues once a minute, by one process.

-- name: gauge
-- Take this minute, if nobody else did since `before` was read: a second process waits for the commit of
-- the first, and then finds another value.
insert into penstock.meta as m (name, value) values ('gauged', %(value)s)
    on conflict (name) do update
   set value = excluded.value
 where m.value = %(before)s;

-- name: gauged
-- When the queues were gauged last; and whether the store may hold any jobs. Not from the tables of jobs:
-- without a condition that is a scan, past every row that is dead or not due.
select (select value
          from penstock.meta
         where name = 'gauged') as value,
       exists (select 1 from penstock.tally) as holds;

-- name: oldest
-- The oldest ready parcel and the earliest ready row of each lane.
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
