-- Jobs that have a row, from the newest id down.
select *
  from penstock.job
 where id < %(below)s
   and (%(lanes)s::text is null
        or lane in (select value::bigint from json_array_elements_text(%(lanes)s::json)))
 order by id desc
 limit %(most)s;
