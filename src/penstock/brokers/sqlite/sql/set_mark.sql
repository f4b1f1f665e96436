-- Keep a mark: one that is new, or in place of the one before.
insert into penstock_mark (lake, position, hold, declared)
values (:lake, :position, :hold, :declared)
    on conflict (lake) do update
   set position = excluded.position,
       hold = excluded.hold,
       declared = excluded.declared;
