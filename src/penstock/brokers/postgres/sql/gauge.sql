-- Measure the queues once a minute, by one process.

-- name: gauge
-- Take this minute, if nobody else did since `before` was read: a second process waits for the commit of
-- the first, and then finds another value.
insert into penstock.meta as m (name, value) values ('gauged', %(value)s)
    on conflict (name) do update
   set value = excluded.value
 where m.value = %(before)s;

-- name: gauged
-- When the queues were gauged last; and whether the store holds any jobs.
select (select value
          from penstock.meta
         where name = 'gauged') as value,
       exists (select 1 from penstock.parcel)
       or exists (select 1 from penstock.lease)
       or exists (select 1 from penstock.job) as holds;

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
