-- Serves the benchmark: what the figures depend on.
select name, current_setting(name)
  from unnest(array['server_version', 'fsync', 'synchronous_commit', 'full_page_writes',
                    'shared_buffers', 'max_wal_size', 'wal_level']) as name;
