-- Schedules.

-- name: schedules
-- Every schedule.
select declared from penstock_schedule;

-- name: put_schedule
-- Keep a schedule that is new; one of this name is left as it is, to be locked and looked at.
insert into penstock_schedule (name, declared) values (:name, :declared)
    on conflict (name) do nothing;

-- name: locked_schedule
-- Serves put_schedule and decide_schedule: the schedule, about to be changed.
select declared from penstock_schedule where name = ?;

-- name: change_schedule
-- Serves put_schedule and decide_schedule, once the row is locked.
update penstock_schedule set declared = :declared where name = :name;

-- name: clear_schedule
-- Forget a schedule; its jobs stay.
delete from penstock_schedule where name = ?;
