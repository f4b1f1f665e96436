-- The raw limit of SQLite.

-- name: raw_table
-- The simplest table that could hold jobs of this size.
create table raw (
    id blob primary key,
    lane integer not null,
    body blob not null
) without rowid;

-- name: raw_insert
-- One row.
insert into raw (id, lane, body)
values (?, ?, ?);
