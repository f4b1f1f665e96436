-- Serves cancel and delete: no claim is under way until the end of the transaction.
select pg_advisory_xact_lock(4855284201);
