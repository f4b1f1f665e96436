-- Serves set_mark and clear_mark: the mark of a lake.
select * from penstock_mark where lake = ?;
