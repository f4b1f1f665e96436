-- Serves delete.
delete from penstock.note where job = %s;
