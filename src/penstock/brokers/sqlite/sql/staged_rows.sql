-- Serves publish: what a part of a write holds, a page at a time.
select id, lane, jobs, lengths, bodies
  from penstock_staged
 where write = :write
   and part = :part
   and id > :after
 order by id
 limit :most;
