-- Serves doctor and migrate: live workers and their releases.
select w.id, w.declared::jsonb ->> 'host' as host, w.declared::jsonb ->> 'pid' as pid,
       w.declared::jsonb ->> 'penstock' as penstock
  from penstock.worker w
 where w.gone = 0
   and w.alive_until > extract(epoch from clock_timestamp())
 order by w.id;
