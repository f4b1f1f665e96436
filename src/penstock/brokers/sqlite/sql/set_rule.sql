-- Put a rule in force; again, it keeps the time it began.
insert into penstock_rule (kind, queue, task, author, reason, created_at, until)
values (:kind, :queue, :task, :author, :reason, :created_at, :until)
    on conflict (kind, queue, task) do update
   set author = excluded.author, reason = excluded.reason, until = excluded.until
returning created_at;
