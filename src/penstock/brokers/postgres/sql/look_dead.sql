-- Serves doctor.
select relname as name, n_dead_tup as dead, n_live_tup as live,
       extract(epoch from clock_timestamp() - greatest(last_autovacuum, last_vacuum))::double precision as seconds
  from pg_stat_user_tables
 where schemaname = 'penstock'
 order by n_dead_tup desc;
