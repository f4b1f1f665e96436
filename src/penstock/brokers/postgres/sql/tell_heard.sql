-- Serves set_rule: these workers heard of the change, and start nothing that it keeps back.
select set_config('synchronous_commit', 'off', true), pg_notify('penstock_heard', %s);
