-- Read spans of the history and of jobs in bulk, and cut them into slices.

-- name: reach
-- How far the history goes behind a position, and where the given number of wanted rows is full;
-- and the last position that there ever was.
select (select seq
          from sqlite_sequence
         where name = 'penstock_history') as newest,
       (select max(position)
          from penstock_history
         where position > :after
           and position <= :until) as last,
       (select position
          from penstock_history
         where position > :after
           and position <= :until
           and (kind = :kind or (:kind is null and kind not in ('attempt', 'gauge', 'minute', 'ten_minutes', 'hour')))
           and :rows is not null
         order by position
         limit 1 offset coalesce(:rows, 1) - 1) as full;

-- name: ends
-- Serves slices: the first and the last position of the history.
select (select min(position) from penstock_history) as first,
       (select max(position) from penstock_history) as last;

-- name: bounds_of_jobs
-- Serves slices: ids that cut what was enqueued into parts of about as many jobs.
select s.id
  from (select id,
               jobs,
               sum(jobs) over (order by id) as so_far,
               sum(jobs) over () as total
          from penstock_sent
         where id > :after and id <= :until) as s
 where s.so_far * :parts / s.total > (s.so_far - s.jobs) * :parts / s.total;

-- name: flow_spans
-- Serves slices: the ids of a flow's jobs, or of those of one node, from the first to the last.
select m.first, m.last
  from penstock_node n
  join penstock_member m on m.node = n.id
 where (:flow is null or n.flow = :flow)
   and (:node is null or n.id = :node);

-- name: scan_events
-- A span of the history, in its order, positions with leading zeros; kind null is all but attempts
-- and gauges.
select printf('%020d', h.position), h.kind, h.at, h.job, l.queue, l.task, l.version, l.priority,
       h.state, h.reason, h.key, h.attempt, h.failures, h.lapses, h.enqueued_at, h.run_at, l.app,
       h.started_at, h.worker, h.tags, h.error, case when :bodies then h.body end,
       case when :bodies then h.result end, h.data
  from penstock_history h
  left join penstock_lane l on l.hash = h.lane
 where h.position > :after
   and h.position <= :until
   and (h.kind = :kind or (:kind is null and h.kind not in ('attempt', 'gauge', 'minute', 'ten_minutes', 'hour')))
   and (:lanes is null or h.lane in (select value from json_each(:lanes)))
   and (:states is null or h.state in (select value from json_each(:states)))
   and (:since is null or h.at >= :since)
   and (:before is null or h.at <= :before)
 order by h.position;

-- name: scan_jobs
-- Jobs with rows of their own, of a span of ids.
select *
  from penstock_job
 where id > :after
   and id <= :until
   and (:lanes is null or lane in (select value from json_each(:lanes)));

-- name: scan_parcels
-- Parcels of a span of ids, and the one before that may reach into it.
select id, lane, jobs, lengths, bodies, attempt, spared
  from penstock_parcel
 where id >= :first
   and id <= :until;

-- name: scan_succeeded
-- Jobs of a span of ids that succeeded and are kept.
select *
  from penstock_history
 where job is not null
   and job > :after
   and job <= :until
   and kind = 'attempt'
   and state = 'succeeded'
   and body is not null
   and (:lanes is null or lane in (select value from json_each(:lanes)));
