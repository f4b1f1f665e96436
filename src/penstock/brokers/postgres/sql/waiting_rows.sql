-- Serves settle: the jobs of a node that wait, to be cancelled because of its needs.
select w.*
  from penstock.member m,
       lateral (
           select j.*
             from penstock.job j
            where j.id between m.first and m.last
              and j.state = 'waiting'
           offset 0  -- so that each range is looked up, whatever the planner thinks of the table
       ) as w
 where m.node = %(node)s
 order by m.place, w.id;
