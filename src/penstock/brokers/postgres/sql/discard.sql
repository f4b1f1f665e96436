-- Forget what is staged of a write.
delete from penstock.staged where write = %s;
