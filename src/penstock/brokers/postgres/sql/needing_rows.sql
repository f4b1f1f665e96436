-- Serves retry: the jobs of a node that were cancelled because of its needs; as waiting_rows.
select w.*
  from penstock.member m,
       lateral (
           select j.*
             from penstock.job j
            where j.id between m.first and m.last
              and j.state = 'cancelled'
              and j.reason = 'needs'
           offset 0
       ) as w
 where m.node = %(node)s
 order by m.place, w.id;
