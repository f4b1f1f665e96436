-- Serves delete: of a flow as a whole.
delete from penstock_node where flow = ?;
