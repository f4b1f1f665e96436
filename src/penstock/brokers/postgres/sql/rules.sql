-- Pauses, blocks, limits and orders.

-- name: rules
-- The rules in force.
select kind, queue, task, version, tag, tag_value, key, per_key, author, reason, created_at, until,
       running, rate_jobs, rate_seconds, policy
  from penstock.rule
 where until is null or until > %s
 order by created_at, kind, queue, task, version, tag, tag_value, key, per_key;

-- name: set_rule
-- Store a rule. One that is in force already keeps its created_at, and an order its policy: the caller
-- compares. The lock waits for claims that are under way; later ones see the rule.
insert into penstock.rule as r (
    kind, queue, task, version, tag, tag_value, key, per_key, author, reason, created_at, until,
    running, rate_jobs, rate_seconds, policy
)
select %(kind)s, %(queue)s, %(task)s, %(version)s, %(tag)s, %(tag_value)s, %(key)s, %(per_key)s,
       %(author)s, %(reason)s, %(created_at)s, %(until)s, %(running)s::integer, %(rate_jobs)s::integer,
       %(rate_seconds)s::double precision, %(policy)s
  from (select pg_advisory_xact_lock(4855284201)) as claims
    on conflict (kind, queue, task, version, tag, tag_value, key, per_key) do update
   set author = excluded.author,
       reason = excluded.reason,
       created_at = case when r.until <= %(now)s then excluded.created_at else r.created_at end,
       until = excluded.until,
       running = excluded.running,
       rate_jobs = excluded.rate_jobs,
       rate_seconds = excluded.rate_seconds
returning created_at, policy;

-- name: clear_rule
-- Remove a rule that is in force.
delete from penstock.rule
 where kind = %(kind)s
   and queue = %(queue)s
   and task = %(task)s
   and version = %(version)s
   and tag = %(tag)s
   and tag_value = %(tag_value)s
   and key = %(key)s
   and per_key = %(per_key)s
   and (until is null or until > %(now)s);

-- name: may_block
-- Serves put and clear: whether this login may block and unblock.
select penstock.may_block() as allowed;

-- name: listeners
-- Serves put: the workers that are alive, and whether they acknowledge a change of the rules.
select id, listens from penstock.worker where gone = 0 and alive_until > %s;

-- name: listen_acknowledged
-- Serves put: receive the acknowledgements of workers.
listen penstock_heard;

-- name: acknowledge
-- These workers were notified of changed rules, and start nothing that those hold back.
select set_config('synchronous_commit', 'off', true), pg_notify('penstock_heard', %s);

-- name: unlisten_acknowledged
-- Serves put: the end of listen_acknowledged.
unlisten penstock_heard;
