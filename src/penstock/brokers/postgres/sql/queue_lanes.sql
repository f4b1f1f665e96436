-- Serves why in an ordered queue: its lanes.
select hash from penstock.lane where queue = %s;
