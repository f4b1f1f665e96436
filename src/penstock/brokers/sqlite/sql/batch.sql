-- Serves enqueue.
select rows from penstock_batch where id = :id;
