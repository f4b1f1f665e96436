-- Serves enqueue.
insert or ignore into penstock_tag (name, value, job) values (?, ?, ?);
