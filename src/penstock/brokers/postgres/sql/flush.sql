-- Serves history: a commit that waits for the disk, and so for all before it.
select pg_logical_emit_message(true, 'penstock', '');
