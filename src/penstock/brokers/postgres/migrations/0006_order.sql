-- Order per key, and fairness between keys. Keys go by a hash of 64 bits: they may be longer than an
-- entry of an index; those without one are the line 0.
alter table penstock.rule add column policy text;  -- of an order: wait, skip or fair

-- Serves claim by keys in turn: the due rows of each key, those without one together.
create index job_turn on penstock.job
    (lane, (coalesce(hashtextextended(nullif(key, ''), 0), 0)), run_at, id)
 where state = 'ready';
-- Serves claim and why in an ordered queue: what stands before a job of a key.
create index job_order on penstock.job
    (lane, (coalesce(hashtextextended(nullif(key, ''), 0), 0)), state, id)
 where key is not null and state in ('failed', 'ready', 'running');
