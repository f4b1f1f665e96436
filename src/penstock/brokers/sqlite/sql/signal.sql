-- Find the jobs that wait for a signal.

-- name: signal
-- The jobs that wait for a signal: by their tag, which a job of another task may have as well.
select j.id
  from penstock_tag t
  join penstock_job j on j.id = t.job
  join penstock_lane l on l.hash = j.lane
 where t.name = :tag
   and t.value = :name
   and j.state = 'waiting'
   and l.task = :task
 order by j.id;
