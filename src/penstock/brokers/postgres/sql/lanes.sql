-- Serves find: the lanes, to narrow down where to look.
select hash, queue, task, search from penstock.lane;
