-- Serves retry: a job that was cancelled because of its needs waits for those that are to blame.
update penstock_need
   set met = 0
 where node = :node
   and met = 1
   and exists (
        select 1 from penstock_node n where n.id = need and (n.bad > 0 or n.jobs_left > 0)
   )
returning need;
