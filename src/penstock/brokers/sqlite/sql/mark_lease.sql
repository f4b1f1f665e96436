-- Serves settle and cancel.
update penstock_lease set marks = ? where id = ?;
