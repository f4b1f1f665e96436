-- Serves settle and recover: nothing of it is held any more.
delete from penstock.lease where id = %s;
