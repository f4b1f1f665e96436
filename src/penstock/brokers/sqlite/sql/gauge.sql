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
       exists (select 1 from penstock_tally where jobs <> 0) as holds,
       (select max(position) from penstock_history) as newest;

-- name: oldest
-- The oldest ready parcel and the earliest ready row of each lane that no pause and no block holds back.
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
           and not exists (
                select 1
                  from penstock_rule r
                 where r.kind in ('block', 'pause')
                   and (r.key <> '' or r.tag <> '')
                   and r.queue in ('', l.queue)
                   and r.task in ('', l.task)
                   and r.version in (-1, l.version)
                   and r.key in ('', j.key)
                   and (r.tag = ''
                        or exists (select 1 from penstock_tag t
                                    where t.name = r.tag and t.value = r.tag_value and t.job = j.id))
                   and (r.until is null or r.until > :now)
               )
         order by j.run_at
         limit 1) as run_at
  from penstock_lane l
 where not exists (
        select 1
          from penstock_rule r
         where r.kind in ('block', 'pause')
           and r.key = ''
           and r.tag = ''
           and r.queue in ('', l.queue)
           and r.task in ('', l.task)
           and r.version in (-1, l.version)
           and (r.until is null or r.until > :now)
       );

-- name: uncounted
-- The next rows of the history whose attempts are not counted yet: how many, and up to where.
select count(*) as jobs,
       max(position) as upto
  from (select position
          from penstock_history
         where position > :after
         order by position
         limit :limit);

-- name: ended
-- The attempts among them, counted. They are of the minute in which they ended, whenever that was.
select lane,
       worker,
       state,
       cast(at / 60 as integer) as minute,
       count(*) as jobs,
       sum(max(0.0, at - started_at)) as ran,
       sum(max(0.0, started_at - coalesce(run_at, enqueued_at, started_at))) as waited
  from penstock_history
 where position > :after
   and position <= :upto
   and kind = 'attempt'
   and started_at is not null
 group by lane, worker, state, minute;

-- name: sampled
-- And some of them, for the histograms.
select lane,
       cast(at / 60 as integer) as minute,
       max(0.0, at - started_at) as ran,
       max(0.0, started_at - coalesce(run_at, enqueued_at, started_at)) as waited
  from penstock_history
 where position > :after
   and position <= :upto
   and position % :every = 0
   and kind = 'attempt'
   and started_at is not null;
