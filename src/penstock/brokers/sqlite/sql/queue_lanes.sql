-- Serves claim and why in an ordered queue: its lanes.
select hash from penstock_lane where queue = ?;
