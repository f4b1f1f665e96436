-- Forget what is staged of a write.
delete from penstock_staged where write = ?;
