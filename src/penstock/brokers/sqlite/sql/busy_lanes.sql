-- Serves claim: the lanes that have anything ready, each with its oldest parcel and its earliest
-- row. Skips from lane to lane, so the cost is that of the lanes, however many jobs are in them.
with recursive packed (lane) as (
    select min(lane) from penstock_parcel
     union all
    select (select min(lane) from penstock_parcel where lane > packed.lane)
      from packed
     where packed.lane is not null
),
loose (lane) as (
    select min(lane) from penstock_job where state = 'ready'
     union all
    select (select min(lane) from penstock_job where state = 'ready' and lane > loose.lane)
      from loose
     where loose.lane is not null
)
select lane,
       (select min(id) from penstock_parcel where lane = packed.lane) as first,
       null as run_at
  from packed
 where lane is not null
 union all
select lane,
       null,
       (select min(run_at) from penstock_job where state = 'ready' and lane = loose.lane)
  from loose
 where lane is not null;
