-- Serves delete.
delete from penstock_note where job = ?;
