-- Serves recover.
update penstock_worker set gone = 1, alive_until = 0 where id = ?;
