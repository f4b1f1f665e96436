-- Every schedule.
select declared from penstock.schedule;
