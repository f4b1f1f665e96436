-- Serves doctor: as they hold for this login in this database. The isolation is what was set for
-- them, since a session of ours sets its own.
select name, setting
  from pg_settings
 where name in ('fsync', 'full_page_writes', 'synchronous_commit', 'autovacuum', 'track_counts',
                'idle_in_transaction_session_timeout', 'default_transaction_read_only')
 union all
select split_part(each, '=', 1), split_part(each, '=', 2)
  from pg_db_role_setting s,
       unnest(s.setconfig) as each
 where s.setdatabase in (0, (select oid from pg_database where datname = current_database()))
   and s.setrole in (0, (select oid from pg_roles where rolname = current_user))
   and split_part(each, '=', 1) = 'default_transaction_isolation';
