-- Serves enqueue: a lane is written down at its first use.
insert into penstock_lane (hash, queue, task, version, priority, runs_on, search)
values (?, ?, ?, ?, ?, ?, ?)
    on conflict (hash) do update set search = excluded.search;
