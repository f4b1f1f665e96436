-- Serves prune: of the flows that ended long ago.
delete from penstock_find
 where flow in (
    select id from penstock_flow where ended_at < :before order by ended_at, id limit :most
 );
