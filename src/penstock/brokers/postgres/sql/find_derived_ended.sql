-- Serves find, as find_derived, when only failed and cancelled ones are asked for.
select *
  from penstock.job
 where id >= 'ff000000-0000-0000-0000-000000000000'
   and (enqueued_at, id) < (%(at)s, %(derived)s)
   and state in ('failed', 'cancelled')
   and (%(lanes)s::text is null
        or lane in (select value::bigint from json_array_elements_text(%(lanes)s::json)))
 order by enqueued_at desc, id desc
 limit %(most)s;
