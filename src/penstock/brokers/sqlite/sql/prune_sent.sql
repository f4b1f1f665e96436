-- Serves prune: ids that are refused from now on because of their age.
delete from penstock_sent
 where id in (
    select id
      from penstock_sent
     where id < :below
     limit :most
 );
