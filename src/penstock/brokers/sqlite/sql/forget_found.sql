-- Serves delete: what a flow is found by.
delete from penstock_find where flow = ?;
