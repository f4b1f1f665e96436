-- Count jobs by where they stand.

-- name: count
-- How many jobs stand where, by lane, state and the minute they are due.
select lane, state, minute, jobs from penstock_tally where jobs <> 0;

-- name: count_later
-- Of the minute that is now, those not due yet.
select count(*) as jobs
  from penstock_job
 where lane = :lane
   and state = 'ready'
   and minute = :minute
   and run_at > :now
   and run_at < 60.0 * (:minute + 1);  -- for the index: all others are later

-- name: count_held
-- Serves count where a rule is about single jobs: how many due rows of each lane it keeps back.
select j.lane, count(*) as jobs
  from penstock_job j
  join penstock_lane l on l.hash = j.lane
 where j.state = 'ready'
   and j.run_at <= :now
   and exists (
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
 group by j.lane;

-- name: count_by_key
-- Serves count under a limit per key: the due rows of each lane and key.
select lane, key, count(*) as jobs
  from penstock_job
 where state = 'ready'
   and run_at <= :now
   and key is not null
 group by lane, key;
