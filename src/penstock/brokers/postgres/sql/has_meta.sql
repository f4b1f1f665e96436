-- Serves every open: whether Penstock has been here before. Asked of the catalog's rows: to_regclass
-- answers from what this session remembers, also while another has just made it.
select exists (
    select 1
      from pg_catalog.pg_class c
      join pg_catalog.pg_namespace n on n.oid = c.relnamespace
     where n.nspname = 'penstock'
       and c.relname = 'meta'
);
