-- Serves prune: of the flows that ended long ago.
delete from penstock_member
 where node in (
    select n.id
      from penstock_node n
     where n.flow in (
        select id from penstock_flow where ended_at < :before order by ended_at, id limit :most
     )
 );
