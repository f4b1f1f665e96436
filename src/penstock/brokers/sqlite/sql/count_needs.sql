-- Serves settle and retry: so many needs of a node ended (or, fewer than none, are open again). The
-- last decides whether its jobs may run.
update penstock_node
   set needs_left = needs_left - :needs,
       freed = needs_left = :needs
           and (on_failure = 'continue'
                or not exists (
                    select 1
                      from penstock_need e
                      join penstock_node n on n.id = e.need
                     where e.node = penstock_node.id
                       and n.bad > 0
                ))
 where id = :id
returning id, flow, needs_left, freed;
