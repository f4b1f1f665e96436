-- Forget what is staged of a write.
with gone as (
    delete from penstock.staged
     where write = %s
    returning id, body is null as packed
)
delete from penstock.parcel p
 using gone g
 where g.packed
   and p.lane = penstock.lane_staged()
   and p.id = g.id;
