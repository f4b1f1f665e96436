-- Serves find, when only failed and cancelled ones are asked for.
select *
  from penstock.job
 where id < %(below)s
   and state in ('failed', 'cancelled')
   and (%(lanes)s::text is null
        or lane in (select value::bigint from json_array_elements_text(%(lanes)s::json)))
 order by id desc
 limit %(most)s;
