-- Flows: jobs joined by needs.

create index penstock_job_waiting on penstock_job (expires_at) where state = 'waiting' and expires_at is not null;

create table penstock_flow (
    id blob primary key check (length(id) = 16),
    name text not null,
    find text,
    state blob not null,
    created_at real not null,
    ended_at real,
    jobs_left integer not null
) without rowid, strict;
create index penstock_flow_ended on penstock_flow (ended_at) where ended_at is not null;

create table penstock_node (
    id blob primary key check (length(id) = 16),
    flow blob not null,
    place integer not null,
    task text not null,
    jobs integer not null,
    on_failure text not null check (on_failure in ('cancel', 'continue')),
    needs_left integer not null,
    jobs_left integer not null,
    bad integer not null default 0,
    freed integer not null
) without rowid, strict;
create index penstock_node_flow on penstock_node (flow, place);

create table penstock_need (
    node blob not null,
    place integer not null,
    need blob not null,
    met integer not null default 0,
    primary key (node, place)
) without rowid, strict;
create index penstock_need_need on penstock_need (need);

create table penstock_member (
    node blob not null,
    place integer not null,
    first blob not null check (length(first) = 16),
    last blob not null check (length(last) = 16),
    primary key (node, place)
) without rowid, strict;
