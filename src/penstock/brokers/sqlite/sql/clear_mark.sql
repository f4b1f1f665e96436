-- Forget a lake.
delete from penstock_mark where lake = ?;
