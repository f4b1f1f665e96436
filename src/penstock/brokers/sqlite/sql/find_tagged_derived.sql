-- Serves find: the jobs with derived ids among those with a tag, the last that was enqueued first. A
-- tag holds no time: all of them are looked up, which is for a tag that has few.
select job, enqueued_at
  from (
    select j.id as job, j.enqueued_at
      from penstock_tag t
      join penstock_job j on j.id = t.job
     where t.name = :name
       and t.value in (select value from json_each(:values))
       and t.job >= x'ff000000000000000000000000000000'
     union
    select h.job, h.enqueued_at
      from penstock_tag t
      join penstock_history h on h.job = t.job
     where t.name = :name
       and t.value in (select value from json_each(:values))
       and t.job >= x'ff000000000000000000000000000000'
       and h.kind = 'attempt'
       and h.state = 'succeeded'
       and h.body is not null
  )
 where (enqueued_at, job) < (:at, :derived)
 order by enqueued_at desc, job desc
 limit :most;
