-- Serves find: parcels from the newest id down; the first may hold ids on both sides of `below`.
select id, lane, jobs, lengths, bodies
  from penstock_parcel
 where id < :below
   and (:lanes is null or lane in (select value from json_each(:lanes)))
 order by id desc
 limit :most;
