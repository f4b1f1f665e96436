-- Serves find: how many jobs with derived ids have a tag; of each value no more than `most` are counted.
select count(*) as jobs
  from json_array_elements_text(%(values)s::json) as wanted (value),
       lateral (
           select 1
             from penstock.tag t
            where t.name = %(name)s
              and t.value = wanted.value
              and t.job >= 'ff000000-0000-0000-0000-000000000000'
            limit %(most)s
       ) as found;
