-- Records that are kept as they are, under their kind and id.

-- name: records
-- Every record of a kind.
select declared from penstock_record where kind = ? and declared <> '';

-- name: new_record
-- Serves put: a row to lock and to compare with. Empty until put_record, in the same transaction.
insert into penstock_record (kind, id, declared) values (?, ?, '')
    on conflict (kind, id) do nothing;

-- name: locked_record
-- Serves put: the record as it is kept, about to be changed.
select declared from penstock_record where kind = ? and id = ?;

-- name: put_record
-- Serves put, once the row is locked.
update penstock_record set declared = ? where kind = ? and id = ?;

-- name: clear_record
-- Delete a record.
delete from penstock_record where kind = ? and id = ?;
