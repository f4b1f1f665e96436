-- The results of a node's jobs that succeeded and are kept.
select g.job, g.result
  from penstock.member m,
       lateral (
           select h.job, h.result
             from penstock.history h
            where h.job between m.first and m.last
              and h.kind = 'attempt'
              and h.state = 'succeeded'
              and h.body is not null
           offset 0  -- so that each range is looked up, and not the whole history compared
       ) as g
 where m.node = %s;
