-- Serves prune: flows that ended long ago; what belongs to them went before.
delete from penstock_flow
 where id in (
    select id from penstock_flow where ended_at < :before order by ended_at, id limit :most
 );
