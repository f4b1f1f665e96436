-- Writes in parts: what is staged until its write is published, and which writes were.
create table penstock.staged (
    write text not null,
    part text not null,
    id uuid not null,
    lane bigint not null,
    jobs integer not null,
    body bytea,  -- one job of its own, as penstock.enqueue_jobs takes it; null: a parcel
    at double precision not null,
    primary key (write, part, id)
);

create table penstock.published (
    write text primary key,
    jobs bigint not null,
    at double precision not null
);
