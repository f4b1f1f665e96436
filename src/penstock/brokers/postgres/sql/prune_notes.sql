-- Serves prune: notes of jobs of which nothing else is left.
delete from penstock.note
 where id in (
    select n.id
      from penstock.note n
     where not exists (select 1 from penstock.job j where j.id = n.job)
       and not exists (select 1 from penstock.history h where h.job = n.job)
       and not exists (
            select 1 from penstock.lease l where position(substr(uuid_send(n.job), 1, 14) in l.firsts) > 0
       )
     limit %(most)s
 );
