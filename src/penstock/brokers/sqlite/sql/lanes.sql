-- Serves every verb that shows a lane as the words it stands for.
select hash, queue, task, version, priority, runs_on from penstock_lane;
