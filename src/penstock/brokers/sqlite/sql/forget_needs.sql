-- Serves delete: of a flow as a whole.
delete from penstock_need
 where node in (select id from penstock_node where flow = ?);
