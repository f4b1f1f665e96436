-- Serves scan: jobs of a span of ids that succeeded and are kept, as text.
copy (
    select h.job, l.queue, l.task, l.version, l.priority, h.state, h.reason, h.key, h.attempt,
           h.failures, h.lapses, (h.enqueued_at * 1000000)::bigint, (h.run_at * 1000000)::bigint,
           (h.started_at * 1000000)::bigint, (h.at * 1000000)::bigint, h.worker, h.tags, h.error,
           convert_from(h.body, 'UTF8'), convert_from(h.result, 'UTF8')
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
