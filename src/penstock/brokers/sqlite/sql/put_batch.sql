-- Serves enqueue: how many rows of a bulk enqueue are stored, committed with them.
insert into penstock_batch (id, rows, at) values (:id, :rows, :at)
    on conflict (id) do update set rows = excluded.rows, at = excluded.at;
