-- Serves put_schedule and decide_schedule: the schedule, about to be changed. Whoever decides the
-- same slot waits here, and then sees that it was decided.
select declared from penstock.schedule where name = %s for update;
