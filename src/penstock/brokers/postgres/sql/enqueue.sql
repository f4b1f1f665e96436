-- Store one job that needs a row of its own. Also serves settle, recover and cancel, when a job
-- leaves its parcel or its lease.
insert into penstock.job (
    id, lane, state, run_at, minute, attempt, failures, lapses, repeats, enqueued_at, ended_at,
    keep_until, at_most_once, key, unique_key, unique_until, unique_seconds, expires_at, tags, search,
    reason, error, body
) values (
    %(id)s, %(lane)s, %(state)s, %(run_at)s, %(minute)s, %(attempt)s, %(failures)s, %(lapses)s, %(repeats)s, %(enqueued_at)s,
    %(ended_at)s, %(keep_until)s, %(at_most_once)s, %(key)s, %(unique_key)s, %(unique_until)s, %(unique_seconds)s, %(expires_at)s,
    %(tags)s, %(search)s, %(reason)s, %(error)s, %(body)s
);
