-- Forget a schedule; its jobs stay.
delete from penstock_schedule where name = ?;
