-- Serves get, find and why: the parcel that would hold an id is the last one that starts at
-- or before it, within its run of ids.
select id, lane, jobs, lengths, bodies
  from penstock_parcel
 where id between ? and ?
 order by id desc
 limit 1;
