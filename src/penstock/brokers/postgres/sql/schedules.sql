-- Schedules.

-- name: schedules
-- Every schedule.
select declared from penstock.schedule;

-- name: put_schedule
-- Store a schedule if there is none of this name; the caller then locks and compares it.
insert into penstock.schedule (name, declared) values (%(name)s, %(declared)s)
    on conflict (name) do nothing;

-- name: locked_schedule
-- Serves put and decide_schedule: the schedule, locked. A second process that decides the same slot waits
-- here, and then sees that it was decided.
select declared from penstock.schedule where name = %s for update;

-- name: change_schedule
-- Serves put and decide_schedule, once the row is locked.
update penstock.schedule set declared = %(declared)s where name = %(name)s;

-- name: clear_schedule
-- Delete a schedule; its jobs stay.
delete from penstock.schedule where name = %s;
