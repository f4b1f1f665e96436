-- The benchmark of SQLite itself.

-- name: raw_table
-- The plainest table that could hold jobs of this size.
create table raw (
    id blob primary key,
    lane integer not null,
    body blob not null
) without rowid;

-- name: raw_insert
-- What one job costs the store itself.
insert into raw (id, lane, body)
values (?, ?, ?);
