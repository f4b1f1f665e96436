-- Store one job that needs a row of its own. Also serves settle, recover and cancel, when a job
-- leaves its parcel or its lease.
insert into penstock_job (
    id, lane, state, run_at, minute, attempt, failures, lapses, repeats, enqueued_at, ended_at,
    keep_until, at_most_once, key, unique_key, unique_until, unique_seconds, expires_at, tags, search,
    reason, error, body
) values (
    :id, :lane, :state, :run_at, :minute, :attempt, :failures, :lapses, :repeats, :enqueued_at,
    :ended_at, :keep_until, :at_most_once, :key, :unique_key, :unique_until, :unique_seconds, :expires_at,
    :tags, :search, :reason, :error, :body
);
