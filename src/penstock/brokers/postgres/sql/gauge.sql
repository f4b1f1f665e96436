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
       exists (select 1 from penstock.tally) as holds,
       (select max(position) from penstock.history) as newest;

-- name: oldest
-- The oldest ready parcel and the earliest ready row of each lane that no pause and no block holds back.
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
           and not exists (
                select 1
                  from penstock.rule r
                 where r.kind in ('block', 'pause')
                   and (r.key <> '' or r.tag <> '')
                   and r.queue in ('', l.queue)
                   and r.task in ('', l.task)
                   and r.version in (-1, l.version)
                   and r.key in ('', j.key)
                   and (r.tag = ''
                        or exists (select 1 from penstock.tag t
                                    where t.name = r.tag and t.value = r.tag_value and t.job = j.id))
                   and (r.until is null or r.until > %(now)s)
               )
         order by j.run_at
         limit 1) as run_at
  from penstock.lane l
 where not exists (
        select 1
          from penstock.rule r
         where r.kind in ('block', 'pause')
           and r.key = ''
           and r.tag = ''
           and r.queue in ('', l.queue)
           and r.task in ('', l.task)
           and r.version in (-1, l.version)
           and (r.until is null or r.until > %(now)s)
       );

-- name: uncounted
-- The next rows of the history whose attempts are not counted yet: how many, and up to where. Below the
-- oldest open transaction, so that no row can appear there any more.
select count(*) as jobs,
       max(position) as upto
  from (select position
          from penstock.history
         where position > %(after)s
           and position < (pg_snapshot_xmin(pg_current_snapshot())::text::bigint << 20)
         order by position
         limit %(limit)s) as rows;

-- name: ended
-- The attempts among them, counted. They are of the minute in which they ended, whenever that was.
select lane,
       worker,
       state,
       floor(at / 60)::bigint as minute,
       count(*) as jobs,
       sum(greatest(0, at - started_at)) as ran,
       sum(greatest(0, started_at - coalesce(run_at, enqueued_at, started_at))) as waited
  from penstock.history
 where position > %(after)s
   and position <= %(upto)s
   and kind = 'attempt'
   and started_at is not null
 group by lane, worker, state, floor(at / 60)::bigint;

-- name: sampled
-- And some of them, for the histograms.
select lane,
       floor(at / 60)::bigint as minute,
       greatest(0, at - started_at) as ran,
       greatest(0, started_at - coalesce(run_at, enqueued_at, started_at)) as waited
  from penstock.history
 where position > %(after)s
   and position <= %(upto)s
   and mod(position, %(every)s) = 0
   and kind = 'attempt'
   and started_at is not null;
