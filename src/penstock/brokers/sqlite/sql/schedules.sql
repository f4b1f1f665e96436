-- Every schedule.
select declared from penstock_schedule;
