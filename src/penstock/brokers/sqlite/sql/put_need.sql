-- Serves enqueue: what a node needs.
insert into penstock_need (node, place, need) values (?, ?, ?);
