-- Find the jobs that wait for a signal.

-- name: signal
-- The jobs that wait for a signal, by their tag; jobs of other tasks may have the same tag. Not locked
-- yet: their flows must be locked first.
select w.id
  from penstock.tag t,
       lateral (
           select j.id
             from penstock.job j
             join penstock.lane l on l.hash = j.lane
            where j.id = t.job
              and j.state = 'waiting'
              and l.task = %(task)s
           offset 0  -- an optimizer fence: one index lookup per job, even with a plan for an empty table
       ) as w
 where t.name = %(tag)s
   and t.value = %(name)s
 order by w.id;
