-- Serves claim where a rule or a limit is about single jobs: one row that was picked.
update penstock_job
   set state = 'running',
       attempt = attempt + 1,
       worker = :worker,
       claimed_at = :now,
       cancelled = 0
 where id = :id
returning *;
