-- Serves doctor: connections for clients, those that are taken, and who will want some.
select current_setting('max_connections')::integer
       - current_setting('superuser_reserved_connections')::integer as most,
       (select count(*) from pg_stat_activity where backend_type = 'client backend') as used,
       (select count(*)
          from penstock.worker w
         where w.gone = 0
           and w.alive_until > extract(epoch from clock_timestamp())) as workers;
