-- The jobs that wait for a signal: by their tag, which a job of another task may have as well. Not
-- locked: that comes after the locks of their flows.
select j.id
  from penstock.tag t
  join penstock.job j on j.id = t.job
  join penstock.lane l on l.hash = j.lane
 where t.name = %(tag)s
   and t.value = %(name)s
   and j.state = 'waiting'
   and l.task = %(task)s
 order by j.id;
