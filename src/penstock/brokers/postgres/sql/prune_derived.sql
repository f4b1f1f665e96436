-- Serves prune: derived ids, which hold no time, by that of their row and of what became of it.
delete from penstock.sent_derived
 where id in (
    select s.id
      from penstock.sent_derived s
     where s.at < %(before)s
       and not exists (select 1 from penstock.job j where j.id = s.id)
       and not exists (select 1 from penstock.history h where h.job = s.id and h.at >= %(before)s)
     limit %(most)s
 );
