-- Serves enqueue: the argument fields that every job of the lane has indexed so far.
select search from penstock_lane where hash = ?;
