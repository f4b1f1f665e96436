-- Forget a lake.
delete from penstock.mark where lake = %s;
