-- Serves the benchmark: the plainest table that could hold jobs of this size.
create table raw (
    id blob primary key,
    lane integer not null,
    body blob not null
) without rowid;
