-- How far lakes have the history. `declared` is JSON: the whole mark, with its gap.
create table penstock.mark (
    lake text primary key,
    position bigint not null,  -- all rows up to and with it are in the lake
    hold double precision not null,  -- seconds that others are kept for it, beyond their retention
    declared text not null
);
