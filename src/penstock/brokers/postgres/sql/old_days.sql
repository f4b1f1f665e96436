-- Serves prune: the partitions of days that are over as a whole, and hold nothing to be kept longer,
-- by itself or for a lake.
select format('%%I.%%I', 'penstock', c.relname) as partition
  from pg_inherits i
  join pg_class c on c.oid = i.inhrelid
  join pg_class p on p.oid = i.inhparent
  join pg_namespace n on n.oid = p.relnamespace
 where n.nspname = 'penstock'
   and p.relname in ('sent', 'history')
   and (penstock.day_of(c.relname) + 1) * 86400.0 <= %(before)s
   and (p.relname = 'sent' or not exists (
        select 1
          from penstock.history h
         where h.at >= penstock.day_of(c.relname) * 86400.0
           and h.at < (penstock.day_of(c.relname) + 1) * 86400.0
           and h.keep_until > %(now)s
   ))
   and (p.relname = 'sent' or not exists (
        select 1
          from penstock.mark m
          join penstock.history h on h.position > m.position
         where h.at >= penstock.day_of(c.relname) * 86400.0
           and h.at < (penstock.day_of(c.relname) + 1) * 86400.0
           and h.at >= %(before)s - m.hold
   ))
 order by 1;
