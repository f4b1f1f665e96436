-- Serves claim, count and why under a rate: what was started lately, of a limit and a key.
select id, boot, at, made_at, jobs
  from penstock_start
 where queue = :queue
   and task = :task
   and per_key = :per_key
   and key = :key;
