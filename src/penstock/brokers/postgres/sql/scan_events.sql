-- Serves scan: a span of the history as text; kind null is all but attempts and gauges. Times are
-- whole microseconds.
copy (
    select h.position, h.kind, (h.at * 1000000)::bigint, h.job,
           case h.kind when 'gauge' then convert_from(h.data, 'UTF8')::json ->> 'queue' else l.queue end,
           l.task, l.version, l.priority, h.state, h.reason, h.key, h.attempt,
           h.failures, h.lapses, (h.enqueued_at * 1000000)::bigint, (h.run_at * 1000000)::bigint,
           (h.started_at * 1000000)::bigint, h.worker, h.tags, h.error,
           convert_from(h.body, 'UTF8'), convert_from(h.result, 'UTF8'), convert_from(h.data, 'UTF8')
      from penstock.history h
      left join penstock.lane l on l.hash = h.lane
     where h.position > %(after)s
       and h.position <= %(until)s
       and (h.kind = %(kind)s::text
            or (%(kind)s::text is null and h.kind not in ('attempt', 'gauge')))
       and (%(lanes)s::text is null
            or h.lane in (select value::bigint from json_array_elements_text(%(lanes)s::json)))
       and (%(states)s::text is null
            or h.state in (select value from json_array_elements_text(%(states)s::json)))
       and (%(since)s::double precision is null or h.at >= %(since)s::double precision)
       and (%(before)s::double precision is null or h.at <= %(before)s::double precision)
) to stdout (format csv, encoding 'UTF8');
