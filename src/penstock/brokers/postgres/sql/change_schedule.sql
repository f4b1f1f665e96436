-- Serves put_schedule and decide_schedule, once the row is locked.
update penstock.schedule set declared = %(declared)s where name = %(name)s;
