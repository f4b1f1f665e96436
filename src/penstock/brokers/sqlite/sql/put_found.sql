-- Serves enqueue: a property that a flow is found by.
insert into penstock_find (property, flow) values (?, ?);
