-- Serves retry: a job that was cancelled because of its needs waits for those that are to blame.
update penstock.need
   set met = false
 where node = %(node)s
   and met
   and exists (
        select 1 from penstock.node n where n.id = need.need and (n.bad > 0 or n.jobs_left > 0)
   )
returning need;
