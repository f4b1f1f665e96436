-- Serves prune: tags of jobs of which nothing else is left.
delete from penstock_tag
 where not exists (select 1 from penstock_job where id = penstock_tag.job)
   and not exists (select 1 from penstock_history where job = penstock_tag.job);
