-- Flows: jobs joined by needs. Workers of the release before know nothing of them, and nobody
-- sends them any.

create index job_waiting on penstock.job (expires_at) where state = 'waiting' and expires_at is not null;

create table penstock.flow (
    id uuid primary key,
    name text not null,
    find text,
    state bytea not null,
    created_at double precision not null,
    ended_at double precision,
    jobs_left bigint not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);
create index flow_ended on penstock.flow (ended_at) where ended_at is not null;

create table penstock.node (
    id uuid primary key,
    flow uuid not null,
    place integer not null,
    task text not null,
    jobs bigint not null,
    on_failure text not null check (on_failure in ('cancel', 'continue')),
    needs_left bigint not null,
    jobs_left bigint not null,
    bad bigint not null default 0,
    freed boolean not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);
create index node_flow on penstock.node (flow, place);

create table penstock.need (
    node uuid not null,
    place integer not null,
    need uuid not null,
    met boolean not null default false,
    primary key (node, place)
);
create index need_need on penstock.need (need);

create table penstock.member (
    node uuid not null,
    place integer not null,
    first uuid not null,
    last uuid not null,
    primary key (node, place)
);
