-- Serves find: the jobs with a tag, or with an argument declared for search, from the newest id down.
select job
  from penstock.tag
 where name = %(name)s
   and value in (select value from json_array_elements_text(%(values)s::json) as value)
   and job < %(below)s
 order by job desc
 limit %(most)s;
