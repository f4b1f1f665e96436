-- Serves enqueue: how many rows of a bulk enqueue are stored, committed with them.
insert into penstock.batch (id, rows, at) values (%(id)s, %(rows)s, %(at)s)
    on conflict (id) do update set rows = excluded.rows, at = excluded.at;
