-- Serves doctor: the oldest open transactions. One that writes is in everybody's way, one that only
-- reads in that of its own database.
select a.pid, a.usename, a.application_name, a.datname, a.state,
       a.backend_xid is not null as writes,
       extract(epoch from clock_timestamp() - a.xact_start)::double precision as seconds
  from pg_stat_activity a
 where a.pid <> pg_backend_pid()
   and a.backend_type = 'client backend'
   and a.xact_start is not null
   and (a.backend_xid is not null or a.backend_xmin is not null and a.datname = current_database())
 order by a.xact_start
 limit 5;
