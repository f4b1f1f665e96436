-- Serves find: jobs with derived ids that have a row, the last that was enqueued first.
select *
  from penstock.job
 where id >= 'ff000000-0000-0000-0000-000000000000'
   and (enqueued_at, id) < (%(at)s, %(derived)s)
   and (%(lanes)s::text is null
        or lane in (select value::bigint from json_array_elements_text(%(lanes)s::json)))
 order by enqueued_at desc, id desc
 limit %(most)s;
