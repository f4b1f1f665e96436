-- Serves set_mark and clear_mark: the mark of a lake.
select declared from penstock_mark where lake = ?;
