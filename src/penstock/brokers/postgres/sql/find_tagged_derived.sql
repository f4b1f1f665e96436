-- Serves find: the jobs with derived ids among those with a tag, the last that was enqueued first. A
-- tag holds no time: all of them are looked up, which is for a tag that has few.
with tagged as materialized (
    select found.job
      from json_array_elements_text(%(values)s::json) as wanted (value),
           lateral (
               select t.job
                 from penstock.tag t
                where t.name = %(name)s
                  and t.value = wanted.value
                  and t.job >= 'ff000000-0000-0000-0000-000000000000'
               offset 0
           ) as found
)
select found.job, found.enqueued_at
  from (
    select j.id as job, j.enqueued_at
      from tagged
      join penstock.job j on j.id = tagged.job
     union
    select h.job, h.enqueued_at
      from tagged
      join penstock.history h on h.job = tagged.job
     where h.kind = 'attempt'
       and h.state = 'succeeded'
       and h.body is not null
  ) as found
 where (found.enqueued_at, found.job) < (%(at)s, %(derived)s)
 order by found.enqueued_at desc, found.job desc
 limit %(most)s;
