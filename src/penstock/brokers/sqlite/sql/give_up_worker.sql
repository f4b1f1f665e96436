-- Serves recover.
update penstock_worker set gone = :now, alive_until = 0 where id = :id;
