-- Serves doctor: as they hold for this login in this database.
select name, setting
  from pg_settings
 where name in ('fsync', 'full_page_writes', 'synchronous_commit', 'autovacuum', 'track_counts',
                'idle_in_transaction_session_timeout');
