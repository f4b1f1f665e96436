-- Serves find: jobs with derived ids that succeeded and are kept, the last that was enqueued first.
select *
  from penstock.history
 where job >= 'ff000000-0000-0000-0000-000000000000'
   and (enqueued_at, job) < (%(at)s, %(derived)s)
   and kind = 'attempt'
   and state = 'succeeded'
   and body is not null
   and (%(lanes)s::text is null
        or lane in (select value::bigint from json_array_elements_text(%(lanes)s::json)))
 order by enqueued_at desc, job desc
 limit %(most)s;
