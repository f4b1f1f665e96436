-- Serves scan: jobs with rows of their own, of a span of ids, as text.
copy (
    select j.id, l.queue, l.task, l.version, l.priority, j.state, j.reason, j.key, j.attempt,
           j.failures, j.lapses, (j.enqueued_at * 1000000)::bigint, (j.run_at * 1000000)::bigint,
           (j.claimed_at * 1000000)::bigint, (j.ended_at * 1000000)::bigint, j.worker, j.tags, j.error,
           convert_from(j.body, 'UTF8'), null
      from penstock.job j
      left join penstock.lane l on l.hash = j.lane
     where j.id > %(after)s::uuid
       and j.id <= %(until)s::uuid
       and (%(lanes)s::text is null
            or j.lane in (select value::bigint from json_array_elements_text(%(lanes)s::json)))
       and (%(states)s::text is null
            or j.state in (select value from json_array_elements_text(%(states)s::json)))
) to stdout (format csv, encoding 'UTF8');
