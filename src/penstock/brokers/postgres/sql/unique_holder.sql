-- Serves enqueue and retry: the job that holds a unique key now.
select job
  from penstock.unique_key
 where key = %(key)s
   and (expires_at is null or expires_at > %(now)s);
