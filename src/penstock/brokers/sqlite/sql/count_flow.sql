-- Serves settle, cancel, expire, delete and retry: jobs of a flow ended, or (fewer than none) are to
-- run again. First of all that is done to a flow: its row is the lock for its nodes.
update penstock_flow
   set jobs_left = jobs_left - :jobs,
       ended_at = case when jobs_left = :jobs then :now end
 where id = :id
returning id, jobs_left;
