-- Serves settle and cancel.
update penstock.lease set marks = %s where id = %s;
