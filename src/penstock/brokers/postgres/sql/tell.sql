-- Serves wait and rules_version: what the others are to hear; the payload is a hint.
select pg_notify('penstock', %s);
