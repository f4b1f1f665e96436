-- Serves the same: jobs of a node ended, so many of them without success, or are to run again.
update penstock.node
   set jobs_left = jobs_left - %(jobs)s,
       bad = bad + %(bad)s
 where id = %(id)s
returning id, flow, jobs_left, needs_left, freed;
