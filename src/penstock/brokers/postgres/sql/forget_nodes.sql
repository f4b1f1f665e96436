-- Serves delete: of a flow as a whole.
delete from penstock.node where flow = %s;
