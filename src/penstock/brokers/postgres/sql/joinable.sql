-- Serves enqueue: whether this login may use the store of this database; null, there is none. Asks
-- the catalog alone, which cannot fail, and so cannot end the transaction of the caller who asks.
select bool_or(has_schema_privilege(n.oid, 'usage') and has_function_privilege(p.oid, 'execute'))
  from pg_catalog.pg_namespace n
  join pg_catalog.pg_proc p on p.pronamespace = n.oid
 where n.nspname = 'penstock'
   and p.proname = 'enqueue_joined';
