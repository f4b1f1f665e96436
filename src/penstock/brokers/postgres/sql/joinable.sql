-- Serves enqueue: whether this login may use the store of this database; null, there is none. Asks
-- the catalog alone, which cannot fail, and so cannot end the transaction of the caller who asks.
-- The function runs with the caller's rights, and whoever may use the one table may use them all.
select bool_or(
           has_schema_privilege(n.oid, 'usage')
           and has_function_privilege(p.oid, 'execute')
           and has_table_privilege(c.oid, 'insert')
       )
  from pg_catalog.pg_namespace n
  join pg_catalog.pg_proc p on p.pronamespace = n.oid
  join pg_catalog.pg_class c on c.relnamespace = n.oid
 where n.nspname = 'penstock'
   and p.proname = 'enqueue_joined'
   and c.relname = 'parcel';
