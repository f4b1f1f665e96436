-- Serves claim by keys in turn: the next key from this one on that has anything ready, with the
-- earliest row of it. Skips from key to key, however many jobs are in them.
select coalesce(key, '') as turn, run_at, id, key
  from penstock_job
 where lane = :lane
   and state = 'ready'
   and coalesce(key, '') >= :turn
 order by coalesce(key, ''), run_at, id
 limit 1;
