-- Serves prune: derived ids, which hold no time, by that of their row; they begin with ff.
delete from penstock_sent
 where id in (
    select id
      from penstock_sent
     where id >= x'ff'
       and at < :before
       and not exists (select 1 from penstock_job where penstock_job.id = penstock_sent.id)
     limit :most
 );
