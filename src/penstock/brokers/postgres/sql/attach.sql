-- Tables of the user's own that are queues; see functions/attach.sql.

-- name: attach_table
-- Attach a table; the statement that did it.
select penstock.attach(%(table)s, %(says)s::jsonb, %(dry_run)s) as done;

-- name: detach_table
-- Take its triggers off a table, of one task or of all; null if it has none.
select penstock.detach(%(table)s, %(task)s, %(dry_run)s) as done;

-- name: attached_tables
-- Every table that is attached, and what its jobs are made of.
select n.nspname || '.' || c.relname as name,
       t.tgenabled <> 'D' as enabled,
       convert_from(substring(t.tgargs for length(t.tgargs) - 1), 'UTF8') as says
  from pg_trigger t
  join pg_class c on c.oid = t.tgrelid
  join pg_namespace n on n.oid = c.relnamespace
 where t.tgfoid = 'penstock.enqueue_row()'::regprocedure
   and t.tgparentid = 0
 order by n.nspname, c.relname, t.tgname;
