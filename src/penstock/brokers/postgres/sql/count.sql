-- Count jobs by lane and state.

-- name: count
-- Jobs by lane, state and the minute they are due.
select lane, state, minute, sum(jobs)::bigint as jobs
  from penstock.tally
 group by lane, state, minute
having sum(jobs) <> 0;

-- name: count_later
-- The jobs of the current minute that are not due yet.
select count(*) as jobs
  from penstock.job
 where lane = %(lane)s
   and state = 'ready'
   and minute = %(minute)s
   and run_at > %(now)s
   and run_at < 60.0 * (%(minute)s + 1);  -- for the index: all others are later

-- name: count_held
-- Serves count under a pause or block by key or tag: how many due rows of each lane it holds back.
select j.lane, count(*) as jobs
  from penstock.job j
  join penstock.lane l on l.hash = j.lane
 where j.state = 'ready'
   and j.run_at <= %(now)s
   and exists (
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
 group by j.lane;

-- name: count_by_key
-- Serves count under a limit per key: the due rows of each lane and key.
select lane, key, count(*) as jobs
  from penstock.job
 where state = 'ready'
   and run_at <= %(now)s
   and key is not null
 group by lane, key;
