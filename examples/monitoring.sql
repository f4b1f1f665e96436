-- Questions to a PostgreSQL store, for dashboards and for bad days. Each only reads: counts and
-- indexes; `rates` and `failures` go through the history of the days that they are about.

-- backlog: how many jobs there are. `scheduled` is exact to the minute.
select l.queue, l.task,
       case when t.state = 'ready' and t.minute > extract(epoch from now()) / 60
            then 'scheduled' else t.state end as state,
       sum(t.jobs) as jobs
  from penstock.tally t
  join penstock.lane l on l.hash = t.lane
 group by 1, 2, 3
having sum(t.jobs) <> 0
 order by 1, 2, 3;

-- oldest: for how long the oldest job that is due has waited, in seconds. Alarm on this one.
select l.queue, max(extract(epoch from now()) - least(packed.due_at, own.due_at)) as waited
  from penstock.lane l
  left join lateral (
       select penstock.made_at(p.id) as due_at
         from penstock.parcel p
        where p.lane = l.hash
        order by p.id
        limit 1
       ) as packed on true
  left join lateral (
       select j.run_at as due_at
         from penstock.job j
        where j.lane = l.hash and j.state = 'ready' and j.run_at <= extract(epoch from now())
        order by j.run_at
        limit 1
       ) as own on true
 where least(packed.due_at, own.due_at) is not null
 group by l.queue
 order by waited desc;

-- rates: the attempts of the last hour by minute and task, how they ended, how long they waited
-- and how long they ran.
select to_timestamp(floor(h.at / 60) * 60) as minute, l.task,
       count(*) filter (where h.state = 'succeeded') as succeeded,
       count(*) filter (where h.state = 'failed') as failed,
       count(*) filter (where h.state = 'ready') as again,
       percentile_cont(0.95) within group (
           order by h.started_at - coalesce(h.run_at, h.enqueued_at)
       ) as waited_p95,
       percentile_cont(0.95) within group (order by h.at - h.started_at) as ran_p95
  from penstock.history h
  join penstock.lane l on l.hash = h.lane
 where h.kind = 'attempt' and h.at > extract(epoch from now()) - 3600
 group by 1, 2
 order by 1, 2;

-- failures: what failed for good in the last day, and with which words.
select l.task, h.reason, right(rtrim(h.error, E'\n'), 200) as says, count(*) as jobs,
       to_timestamp(max(h.at)) as last
  from penstock.history h
  join penstock.lane l on l.hash = h.lane
 where h.kind = 'attempt' and h.state = 'failed' and h.at > extract(epoch from now()) - 86400
 group by 1, 2, 3
 order by jobs desc
 limit 20;

-- workers: who is there, since when, and when each last took work.
select w.id, w.declared::jsonb ->> 'host' as host, w.declared::jsonb ->> 'penstock' as penstock,
       to_timestamp(w.alive_until) as alive_until, to_timestamp(w.claimed_at) as claimed_at
  from penstock.worker w
 where w.gone = 0
 order by w.id;

-- held: what runs for longest. Of packed jobs a lease is shown, with how many of it are not settled.
select l.task, held.worker, to_timestamp(held.claimed_at) as claimed_at, held.jobs
  from (
       select lane, worker, claimed_at,
              (select count(*) from generate_series(0, length(marks) - 1) as i
                where get_byte(marks, i) <> 1) as jobs
         from penstock.lease
       union all
       select lane, worker, claimed_at, 1 from penstock.job where state = 'running'
       ) as held
  join penstock.lane l on l.hash = held.lane
 order by held.claimed_at
 limit 20;

-- room: how large the tables are, days included, and how many of their rows are dead.
select s.relname as name, pg_size_pretty(pg_total_relation_size(s.relid)) as size,
       s.n_live_tup as live, s.n_dead_tup as dead,
       greatest(s.last_autovacuum, s.last_vacuum) as vacuumed_at
  from pg_stat_user_tables s
 where s.schemaname = 'penstock'
 order by pg_total_relation_size(s.relid) desc;
