-- Serves delete: a flow, after all that belongs to it.
delete from penstock_flow where id = ?;
