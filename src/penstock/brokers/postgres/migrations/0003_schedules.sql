-- Schedules by name. `declared` is JSON: what was asked for, how far its slots are decided, and a
-- revision, which is the fence of whoever decides next.
create table penstock.schedule (
    name text primary key,
    declared text not null
) with (fillfactor = 50);
