-- Serves settle: the history row of a packed job that succeeded at its first attempt.
insert into penstock.history (
    kind, at, job, lane, attempt, state, enqueued_at, started_at, worker, body, result, keep_until
) values (
    'attempt', %s, %s, %s, 1, 'succeeded', %s, %s, %s, %s, %s, %s
);
