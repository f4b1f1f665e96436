-- Serves set_mark and clear_mark: the mark of a lake.
select declared from penstock.mark where lake = %s;
