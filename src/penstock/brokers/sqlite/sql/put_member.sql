-- Serves enqueue: jobs of a node whose ids follow on.
insert into penstock_member (node, place, first, last) values (?, ?, ?, ?);
