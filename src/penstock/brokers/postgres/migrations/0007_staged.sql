-- Writes in parts: what is staged until its write is published, and which writes were.
create unlogged table penstock.staged (
    write text not null,
    part text not null,
    id uuid not null,
    lane bigint not null,
    jobs integer not null,
    lengths bytea,  -- null: bodies is one job of its own, as penstock.enqueue_jobs takes it
    bodies bytea not null,
    at double precision not null,
    primary key (write, part, id)
);
alter table penstock.staged alter column bodies set storage external, alter column lengths set storage external;

create table penstock.published (
    write text primary key,
    jobs bigint not null,
    at double precision not null
);
