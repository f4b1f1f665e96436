-- Find the jobs that wait for a signal.

-- name: signal
-- The jobs that wait for a signal: by their tag, which a job of another task may have as well. Not
-- locked: that comes after the locks of their flows.
select w.id
  from penstock.tag t,
       lateral (
           select j.id
             from penstock.job j
             join penstock.lane l on l.hash = j.lane
            where j.id = t.job
              and j.state = 'waiting'
              and l.task = %(task)s
           offset 0  -- so that each is looked up, also by a plan that was made for an empty table
       ) as w
 where t.name = %(tag)s
   and t.value = %(name)s
 order by w.id;
