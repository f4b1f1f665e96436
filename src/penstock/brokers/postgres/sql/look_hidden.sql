-- Serves doctor: sessions of which this login sees only that they are there.
select count(*) as sessions
  from pg_stat_activity
 where backend_type is null and query = '<insufficient privilege>'
    or query = '<insufficient privilege>' and usename is distinct from current_user;
