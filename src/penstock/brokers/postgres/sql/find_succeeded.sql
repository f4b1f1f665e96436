-- Serves find: jobs that succeeded and are kept, from the newest id down.
select *
  from penstock.history
 where job is not null
   and job < %(below)s
   and kind = 'attempt'
   and state = 'succeeded'
   and body is not null
   and (%(lanes)s::text is null
        or lane in (select value::bigint from json_array_elements_text(%(lanes)s::json)))
 order by job desc
 limit %(most)s;
