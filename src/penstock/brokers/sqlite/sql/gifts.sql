-- The results of a node's jobs that succeeded and are kept.
select h.job, h.result
  from penstock_member m
  join penstock_history h on h.job between m.first and m.last
 where m.node = ?
   and h.kind = 'attempt'
   and h.state = 'succeeded'
   and h.body is not null;
