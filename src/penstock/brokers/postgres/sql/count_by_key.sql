-- Serves count under a limit per key: the due rows of each lane and key.
select lane, key, count(*) as jobs
  from penstock.job
 where state = 'ready'
   and run_at <= %(now)s
   and key is not null
 group by lane, key;
