-- Records that are kept as they are, under their kind and id.

-- name: records
-- Every record of a kind.
select declared from penstock.record where kind = %s and declared <> '';

-- name: new_record
-- Serves put: a row to lock and to compare with. Empty until put_record, in the same transaction.
insert into penstock.record (kind, id, declared) values (%s, %s, '')
    on conflict (kind, id) do nothing;

-- name: locked_record
-- Serves put: the record as it is kept, about to be changed.
select declared from penstock.record where kind = %s and id = %s for update;

-- name: put_record
-- Serves put, once the row is locked.
update penstock.record set declared = %s where kind = %s and id = %s;

-- name: clear_record
-- Delete a record.
delete from penstock.record where kind = %s and id = %s;
