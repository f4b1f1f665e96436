-- Jobs of a write that are stored before they are published.

-- name: stage
-- Keep jobs of one part of a write; what it holds already is left as it is.
insert into penstock_staged (write, part, id, lane, jobs, lengths, bodies, at)
values (:write, :part, :id, :lane, :jobs, :lengths, :bodies, :now)
    on conflict do nothing;

-- name: staged
-- Serves publish: how many jobs each part of a write holds.
select part, sum(jobs) as jobs
  from penstock_staged
 where write = ?
 group by part;

-- name: staged_rows
-- Serves publish: what a part of a write holds, a page at a time.
select id, lane, jobs, lengths, bodies
  from penstock_staged
 where write = :write
   and part = :part
   and id > :after
 order by id
 limit :most;

-- name: publish
-- The write is published from now on; no row if it was before.
insert into penstock_published as p (write, jobs, at, token, epoch)
values (:write, :jobs, :now, :token, :epoch)
    on conflict (write) do update
   set jobs = excluded.jobs, at = excluded.at, token = excluded.token, epoch = excluded.epoch
 where p.epoch < excluded.epoch;

-- name: published
-- Serves publish: what is known of a write; no row if a later epoch stands for it.
select jobs, token
  from penstock_published
 where write = :write
   and epoch = :epoch;

-- name: discard
-- Forget what is staged of a write.
delete from penstock_staged where write = ?;
