-- Serves put_schedule and decide_schedule: the schedule, about to be changed.
select declared from penstock_schedule where name = ?;
