-- Forget a schedule; its jobs stay.
delete from penstock.schedule where name = %s;
