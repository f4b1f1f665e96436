-- Serves prune: notes of jobs of which nothing else is left.
delete from penstock_note
 where not exists (select 1 from penstock_job where id = penstock_note.job)
   and not exists (select 1 from penstock_history where job = penstock_note.job)
   and not exists (select 1 from penstock_lease where instr(ids, penstock_note.job) > 0);
