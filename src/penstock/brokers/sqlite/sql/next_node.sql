-- Serves enqueue and settle: the place of the next node of a flow.
select coalesce(max(place) + 1, 0) as place from penstock_node where flow = ?;
