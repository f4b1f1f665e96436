-- How far lakes have the history. `declared` is JSON: the whole mark, with its gap.
create table penstock_mark (
    lake text primary key,
    position integer not null,  -- all rows up to and with it are in the lake
    hold real not null,  -- seconds that others are kept for it, beyond their retention
    declared text not null
) without rowid, strict;
