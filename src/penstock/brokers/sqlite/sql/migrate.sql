-- Make the schema, or bring it forward.

-- name: has_meta
-- Serves every open: whether Penstock has been here before.
select count(*) from sqlite_master where type = 'table' and name = 'penstock_meta';

-- name: meta
-- Serves every open: the schema's number and the store's id.
select name, value from penstock_meta;

-- name: put_meta
-- Serves every verb that keeps a fact about the store.
insert into penstock_meta (name, value) values (:name, :value)
    on conflict (name) do update set value = excluded.value;

-- name: meta_value
-- Serves enqueue: one fact about the store, such as its id, or the time from before which ids are
-- refused because they are no longer remembered.
select value from penstock_meta where name = ?;
