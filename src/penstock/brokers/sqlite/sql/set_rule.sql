-- Put a rule in force; set again while it is, it keeps the time it began.
insert into penstock_rule (kind, queue, task, author, reason, created_at, until)
values (:kind, :queue, :task, :author, :reason, :created_at, :until)
    on conflict (kind, queue, task) do update
   set author = excluded.author,
       reason = excluded.reason,
       created_at = case when until <= :now then excluded.created_at else created_at end,
       until = excluded.until
returning created_at;
