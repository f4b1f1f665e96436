-- Serves doctor: transactions that were prepared and forgotten.
select gid, owner, database,
       extract(epoch from clock_timestamp() - prepared)::double precision as seconds
  from pg_prepared_xacts
 order by prepared
 limit 5;
