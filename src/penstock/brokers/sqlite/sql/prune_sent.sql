-- Serves prune: ids that are refused from now on because of their age, and derived ones by their row.
delete from penstock_sent
 where id < :below
    or (at < :before and not exists (select 1 from penstock_job where id = penstock_sent.id));
