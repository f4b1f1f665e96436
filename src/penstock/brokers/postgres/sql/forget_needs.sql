-- Serves delete: of a flow as a whole.
delete from penstock.need
 where node in (select id from penstock.node where flow = %s);
