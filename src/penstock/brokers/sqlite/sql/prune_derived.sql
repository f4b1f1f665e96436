-- Serves prune: derived ids, which hold no time, by that of their row and of what became
-- of it; they begin with ff.
delete from penstock_sent
 where id in (
    select id
      from penstock_sent
     where id >= x'ff'
       and at < :before
       and not exists (select 1 from penstock_job where penstock_job.id = penstock_sent.id)
       and not exists (
            select 1 from penstock_history h where h.job = penstock_sent.id and h.at >= :before
       )
     limit :most
 );
