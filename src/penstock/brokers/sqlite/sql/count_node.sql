-- Serves the same: jobs of a node ended, so many of them without success, or are to run again.
update penstock_node
   set jobs_left = jobs_left - :jobs,
       bad = bad + :bad
 where id = :id
returning id, flow, jobs_left, needs_left, freed;
