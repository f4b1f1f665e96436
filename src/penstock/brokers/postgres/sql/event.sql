-- Serves every verb that leaves one of the rarer events, and an attempt that ended.
insert into penstock.history (
    kind, at, job, lane, attempt, failures, lapses, repeats, state, reason, key, enqueued_at, run_at,
    started_at, worker, tags, error, body, result, data, keep_until
) values (
    %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s
);
