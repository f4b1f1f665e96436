-- Serves scan: a span of the history, in its order; kind null is all but attempts and gauges.
select h.position, h.kind, h.at, h.job, l.queue, l.task, l.version, l.priority, h.state, h.reason,
       h.key, h.attempt, h.failures, h.lapses, h.enqueued_at, h.run_at, h.started_at, h.worker, h.tags,
       h.error, h.body, h.result, h.data
  from penstock_history h
  left join penstock_lane l on l.hash = h.lane
 where h.position > :after
   and h.position <= :until
   and (h.kind = :kind or (:kind is null and h.kind not in ('attempt', 'gauge')))
   and (:lanes is null or h.lane in (select value from json_each(:lanes)))
   and (:states is null or h.state in (select value from json_each(:states)))
   and (:since is null or h.at >= :since)
   and (:before is null or h.at <= :before)
 order by h.position;
