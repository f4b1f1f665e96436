-- Serves find: the jobs with a tag, or with an argument declared for search, from the newest id down.
select found.job
  from json_array_elements_text(%(values)s::json) as wanted (value),
       lateral (
           select t.job
             from penstock.tag t
            where t.name = %(name)s
              and t.value = wanted.value
              and t.job < %(below)s
            order by t.job desc
            limit %(most)s
       ) as found
 order by found.job desc
 limit %(most)s;
