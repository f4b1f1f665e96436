-- Order per key, and fairness between keys.
alter table penstock_rule add column policy text;  -- of an order: wait, skip or fair

-- Serves claim by keys in turn: the due rows of each key, those without one together.
create index penstock_job_turn on penstock_job (lane, coalesce(key, ''), run_at, id) where state = 'ready';
-- Serves claim and why in an ordered queue: what stands before a job of a key.
create index penstock_job_order on penstock_job (lane, key, state, id)
 where key is not null and state in ('failed', 'ready', 'running');
