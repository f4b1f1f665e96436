-- Serves enqueue: remember the id, so that it is recognised when it is sent again.
insert into penstock_sent (id, jobs, at) values (?, ?, ?);
