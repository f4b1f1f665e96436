-- Serves claim: its window is over.
delete from penstock_start where id = ?;
