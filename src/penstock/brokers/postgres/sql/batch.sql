-- Serves enqueue: how many rows of a bulk enqueue are stored.
select rows from penstock.batch where id = %(id)s for update;
