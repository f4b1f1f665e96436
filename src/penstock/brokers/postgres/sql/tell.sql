-- Serves wait and rules_version: what the others are to hear. A hint need not be on the disk.
select set_config('synchronous_commit', 'off', true), pg_notify('penstock', %s);
