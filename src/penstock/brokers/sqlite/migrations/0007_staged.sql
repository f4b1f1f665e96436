-- Writes in parts: what is staged until its write is published, and which writes were.
create table penstock_staged (
    write text not null,
    part text not null,
    id blob not null check (length(id) = 16),
    lane integer not null,
    jobs integer not null,
    lengths blob,  -- null: bodies is one job of its own, as JSON
    bodies blob not null,
    at real not null,
    primary key (write, part, id)
) strict;

create table penstock_published (
    write text primary key,
    jobs integer not null,
    at real not null
) without rowid, strict;
