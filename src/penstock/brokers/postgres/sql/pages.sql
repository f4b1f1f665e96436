-- Serves slices: how many pages the history has.
select coalesce(sum(pg_relation_size(c.oid)), 0)::bigint / 8192 as pages
  from pg_inherits i
  join pg_class c on c.oid = i.inhrelid
 where i.inhparent = 'penstock.history'::regclass;
