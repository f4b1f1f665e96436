-- Serves gifts: the jobs of a node that have rows, and so no result.
select w.id, w.state
  from penstock.member m,
       lateral (
           select j.id, j.state from penstock.job j where j.id between m.first and m.last offset 0
       ) as w
 where m.node = %s;
