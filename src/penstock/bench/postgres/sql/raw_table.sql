-- Serves the benchmark: the plainest table that could hold jobs of this size.
create table raw (
    id bytea primary key,
    lane bigint not null,
    body bytea not null
);
