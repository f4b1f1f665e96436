-- Serves prune: derived ids, which hold no time, by that of their row.
delete from penstock.sent_derived
 where id in (
    select s.id
      from penstock.sent_derived s
     where s.at < %(before)s
       and not exists (select 1 from penstock.job j where j.id = s.id)
     limit %(most)s
 );
