-- Serves settle and retry: so many needs of a node ended (or, fewer than none, are open again). The
-- last decides whether its jobs may run.
update penstock.node
   set needs_left = needs_left - %(needs)s,
       freed = needs_left = %(needs)s
           and (on_failure = 'continue'
                or not exists (
                    select 1
                      from penstock.need e
                      join penstock.node n on n.id = e.need
                     where e.node = penstock.node.id
                       and n.bad > 0
                ))
 where id = %(id)s
returning id, flow, needs_left, freed;
