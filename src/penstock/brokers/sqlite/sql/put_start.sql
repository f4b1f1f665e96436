-- Serves claim: so many jobs were started under a rate.
insert into penstock_start (queue, task, per_key, key, boot, at, made_at, jobs)
values (:queue, :task, :per_key, :key, :boot, :at, :made_at, :jobs);
