-- Serves prune: workers that were given up long ago, and hold nothing that was stored after that.
delete from penstock.worker w
 where w.gone > 0
   and w.gone < %(before)s
   and not exists (select 1 from penstock.lease l where l.worker = w.id)
   and not exists (select 1 from penstock.job j where j.worker = w.id and j.state = 'running');
