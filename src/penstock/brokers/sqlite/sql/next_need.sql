-- Serves settle: the place of the next need of a node.
select coalesce(max(place) + 1, 0) as place from penstock_need where node = ?;
