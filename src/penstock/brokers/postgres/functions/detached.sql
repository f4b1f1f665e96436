-- Detached jobs, for people who query in SQL: waiting, running and ended ones in one list. `locked` says
-- whether the lease of the job's process has not run out; no lock is taken or tested. Columns are only
-- ever added, at the end; a migration that changes a column of a table below drops the view first, and
-- this creates it again.
create or replace view penstock.detached as
select t.job as id,
       l.task,
       l.queue,
       coalesce(j.state, e.state) as state,
       coalesce(j.reason, e.reason) as reason,
       coalesce(j.attempt, e.attempt, 0) as attempt,
       coalesce(j.failures, e.failures, 0) as failures,
       coalesce(j.lapses, e.lapses, 0) as lapses,
       w.declared::json ->> 'host' as host,
       (w.declared::json ->> 'pid')::integer as pid,
       coalesce(w.gone = 0 and w.alive_until > extract(epoch from clock_timestamp()), false) as locked,
       to_timestamp(coalesce(j.enqueued_at, e.enqueued_at)) as enqueued_at,
       to_timestamp(coalesce(j.claimed_at, e.started_at)) as started_at,
       to_timestamp(coalesce(j.ended_at, e.at)) as ended_at,
       coalesce(j.error, e.error) as error,
       (p.value ->> 'fraction')::double precision as progress,
       p.value ->> 'note' as progress_note,
       a.value ->> 'id' as application,
       a.value ->> 'master' as master
  from penstock.tag t
  left join penstock.job j on j.id = t.job
  -- Jobs that succeeded have no row in penstock.job, only one in the history.
  left join lateral (
      select h.lane, h.state, h.reason, h.attempt, h.failures, h.lapses, h.enqueued_at, h.started_at, h.at,
             h.error
        from penstock.history h
       where j.id is null
         and h.job = t.job
         and h.kind = 'attempt'
       order by h.position desc
       limit 1
  ) e on true
  left join penstock.lane l on l.hash = coalesce(j.lane, e.lane)
  left join penstock.worker w on w.id = j.worker and j.state = 'running'
  left join lateral (
      select convert_from(n.value, 'UTF8')::json as value
        from penstock.note n
       where n.job = j.id
         and j.state = 'running'
         and n.kind = 'progress'
         and n.name = ''
  ) p on true
  left join lateral (
      select convert_from(n.value, 'UTF8')::json as value
        from penstock.note n
       where n.job = j.id
         and j.state = 'running'
         and n.kind = 'application'
         and n.name = ''
  ) a on true
 where t.name = 'detached'
   and t.value = 'yes'
   and (j.id is not null or e.state is not null);
