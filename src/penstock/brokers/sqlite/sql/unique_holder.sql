-- Serves enqueue and retry: the job that holds a unique key now.
select job
  from penstock_unique
 where key = :key
   and (expires_at is null or expires_at > :now);
