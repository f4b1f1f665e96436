-- Serves every verb that shows a lane as the words it stands for.
select queue, task, version, priority, runs_on, search from penstock.lane where hash = %s;
