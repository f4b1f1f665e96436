-- Serves enqueue: a lane is written down at its first use.
insert or ignore into penstock_lane (hash, queue, task, version, priority, runs_on)
values (?, ?, ?, ?, ?, ?);
