-- Serves prune: tags of jobs of which nothing else is left.
delete from penstock.tag t
 where (t.name, t.value, t.job) in (
    select o.name, o.value, o.job
      from penstock.tag o
     where not exists (select 1 from penstock.job j where j.id = o.job)
       and not exists (select 1 from penstock.history h where h.job = o.job)
     limit %(most)s
 );
