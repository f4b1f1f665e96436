-- Schedules.

-- name: schedules
-- Every schedule.
select declared from penstock.schedule;

-- name: put_schedule
-- Keep a schedule that is new; one of this name is left as it is, to be locked and looked at.
insert into penstock.schedule (name, declared) values (%(name)s, %(declared)s)
    on conflict (name) do nothing;

-- name: locked_schedule
-- Serves put_schedule and decide_schedule: the schedule, about to be changed. Whoever decides the
-- same slot waits here, and then sees that it was decided.
select declared from penstock.schedule where name = %s for update;

-- name: change_schedule
-- Serves put_schedule and decide_schedule, once the row is locked.
update penstock.schedule set declared = %(declared)s where name = %(name)s;

-- name: clear_schedule
-- Forget a schedule; its jobs stay.
delete from penstock.schedule where name = %s;
