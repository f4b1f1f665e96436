-- Read the history and jobs in bulk, and cut them into slices.

-- name: reach
-- The last position of the history after `after` and below the oldest open transaction (`safe`); and the
-- position of the wanted row number `rows`, if there are so many.
select (select h.position
          from penstock.history h
         where h.position > %(after)s
           and h.position < %(safe)s
         order by h.position desc
         limit 1) as last,
       (select h.position
          from penstock.history h
         where h.position > %(after)s
           and h.position < %(safe)s
           and (h.kind = %(kind)s::text
                or (%(kind)s::text is null and h.kind not in ('attempt', 'gauge', 'minute', 'ten_minutes', 'hour')))
           and %(rows)s::bigint is not null
         order by h.position
        offset coalesce(%(rows)s::bigint, 1) - 1
         limit 1) as "full";

-- name: writers
-- Serves reach: the oldest open transaction, and the next one to begin.
select pg_snapshot_xmin(s)::text::bigint as oldest,
       pg_snapshot_xmax(s)::text::bigint as next
  from pg_current_snapshot() as s;

-- name: pages
-- Serves slices: how many pages the history has.
select coalesce(sum(pg_relation_size(c.oid)), 0)::bigint / 8192 as pages
  from pg_inherits i
  join pg_class c on c.oid = i.inhrelid
 where i.inhparent = 'penstock.history'::regclass;

-- name: bounds
-- Serves slices: positions that cut a span of the history into parts with the same number of rows.
select s.position
  from (select h.position,
               row_number() over (order by h.position) as place,
               count(*) over () as total
          from penstock.history h
         where h.position > %(after)s
           and h.position <= %(until)s) as s
 where s.place * %(parts)s / s.total > (s.place - 1) * %(parts)s / s.total;

-- name: bounds_sampled
-- As bounds, for a large history: by a random sample of a few hundred pages, since to count all rows takes
-- a tenth of the time of reading them.
with sampled as (
    select h.position
      from penstock.history h tablesample system (%(percent)s)
     where h.position > %(after)s
       and h.position <= %(until)s
)
select s.position, s.total
  from (select position,
               row_number() over (order by position) as place,
               count(*) over () as total
          from sampled) as s
 where s.place * %(parts)s / s.total > (s.place - 1) * %(parts)s / s.total;

-- name: bounds_of_jobs
-- Serves slices: ids that cut what was enqueued into parts with about the same number of jobs.
select s.id
  from (select id,
               jobs,
               sum(jobs) over (order by id)::bigint as so_far,
               sum(jobs) over ()::bigint as total
          from penstock.sent
         where id > %(after)s and id <= %(until)s) as s
 where s.so_far * %(parts)s / s.total > (s.so_far - s.jobs) * %(parts)s / s.total;

-- name: flow_spans
-- Serves slices: the ranges of ids of a flow's jobs, or of one node's.
select m.first, m.last
  from penstock.node n
  join penstock.member m on m.node = n.id
 where (%(flow)s::uuid is null or n.flow = %(flow)s::uuid)
   and (%(node)s::uuid is null or n.id = %(node)s::uuid);

-- name: scan_events
-- A span of the history as CSV; positions with leading zeros, times in microseconds. `kind` null: all but
-- attempts and gauges.
copy (
    select lpad(h.position::text, 20, '0'), h.kind, (h.at * 1000000)::bigint, h.job,
           case h.kind when 'gauge' then convert_from(h.data, 'UTF8')::json ->> 'queue' else l.queue end,
           l.task, l.version, l.priority, h.state, h.reason, h.key, h.attempt,
           h.failures, h.lapses, (h.enqueued_at * 1000000)::bigint, (h.run_at * 1000000)::bigint, l.app,
           (h.started_at * 1000000)::bigint, h.worker, h.tags, h.error,
           case when %(bodies)s then convert_from(h.body, 'UTF8') end,
           case when %(bodies)s then convert_from(h.result, 'UTF8') end, convert_from(h.data, 'UTF8')
      from penstock.history h
      left join penstock.lane l on l.hash = h.lane
     where h.position > %(after)s
       and h.position <= %(until)s
       and (h.kind = %(kind)s::text
            or (%(kind)s::text is null and h.kind not in ('attempt', 'gauge', 'minute', 'ten_minutes', 'hour')))
       and (%(lanes)s::text is null
            or h.lane in (select value::bigint from json_array_elements_text(%(lanes)s::json)))
       and (%(states)s::text is null
            or h.state in (select value from json_array_elements_text(%(states)s::json)))
       and (%(since)s::double precision is null or h.at >= %(since)s::double precision)
       and (%(before)s::double precision is null or h.at <= %(before)s::double precision)
) to stdout (format csv, encoding 'UTF8');

-- name: scan_jobs
-- The rows of jobs in a span of ids, as CSV.
copy (
    select j.id, l.queue, l.task, l.version, l.priority, j.state, j.reason, j.key, j.attempt,
           j.failures, j.lapses, (j.enqueued_at * 1000000)::bigint, (j.run_at * 1000000)::bigint, l.app,
           (j.claimed_at * 1000000)::bigint, (j.ended_at * 1000000)::bigint, j.worker, j.tags, j.error,
           case when %(bodies)s then convert_from(j.body, 'UTF8') end, null
      from penstock.job j
      left join penstock.lane l on l.hash = j.lane
     where j.id > %(after)s::uuid
       and j.id <= %(until)s::uuid
       and (%(lanes)s::text is null
            or j.lane in (select value::bigint from json_array_elements_text(%(lanes)s::json)))
       and (%(states)s::text is null
            or j.state in (select value from json_array_elements_text(%(states)s::json)))
) to stdout (format csv, encoding 'UTF8');

-- name: scan_parcels
-- The parcels of a span of ids, and the one before it that may reach into it. Joined with the lanes, since
-- the primary key begins with the lane.
select p.id, p.lane, p.jobs, p.lengths, p.bodies, p.attempt, p.spared
  from penstock.lane l
  join penstock.parcel p on p.lane = l.hash
 where p.id >= %(first)s
   and p.id <= %(until)s;

-- name: scan_succeeded
-- Jobs in a span of ids that succeeded and are kept, as CSV.
copy (
    select h.job, l.queue, l.task, l.version, l.priority, h.state, h.reason, h.key, h.attempt,
           h.failures, h.lapses, (h.enqueued_at * 1000000)::bigint, (h.run_at * 1000000)::bigint, l.app,
           (h.started_at * 1000000)::bigint, (h.at * 1000000)::bigint, h.worker, h.tags, h.error,
           case when %(bodies)s then convert_from(h.body, 'UTF8') end,
           case when %(bodies)s then convert_from(h.result, 'UTF8') end
      from penstock.history h
      left join penstock.lane l on l.hash = h.lane
     where h.job is not null
       and h.job > %(after)s::uuid
       and h.job <= %(until)s::uuid
       and h.kind = 'attempt'
       and h.state = 'succeeded'
       and h.body is not null
       and (%(lanes)s::text is null
            or h.lane in (select value::bigint from json_array_elements_text(%(lanes)s::json)))
) to stdout (format csv, encoding 'UTF8');
