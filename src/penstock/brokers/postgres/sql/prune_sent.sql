-- Serves prune: ids that are refused from now on because of their age.
delete from penstock.sent
 where id in (
    select id
      from penstock.sent
     where id < penstock.first_id(%(before)s)
     limit %(most)s
 );
