-- Serves find: parcels from the newest id down; the first may hold ids on both sides of `below`.
-- Their key begins with the lane, so each lane gives its newest and the best of them are read.
select p.id, p.lane, p.jobs, p.lengths, p.bodies
  from (
    select newest.lane, newest.id
      from penstock.lane l,
           lateral (
               select p.lane, p.id
                 from penstock.parcel p
                where p.lane = l.hash
                  and p.id < %(below)s
                order by p.id desc
                limit %(most)s
           ) as newest
     where %(lanes)s::text is null
        or l.hash in (select value::bigint from json_array_elements_text(%(lanes)s::json))
     order by newest.id desc
     limit %(most)s
  ) as best
  join penstock.parcel p on p.lane = best.lane and p.id = best.id
 order by p.id desc;
