-- Keep a mark: one that is new, or in place of the one before.
insert into penstock.mark (lake, position, hold, declared)
values (%(lake)s, %(position)s, %(hold)s, %(declared)s)
    on conflict (lake) do update
   set position = excluded.position,
       hold = excluded.hold,
       declared = excluded.declared;
