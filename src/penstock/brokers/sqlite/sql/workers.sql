-- Workers as they stand.

-- name: workers
-- Every worker that was not given up, with how many rows it holds.
select id, boot, alive_until, claimed_at, declared,
       (select count(*) from penstock_job where worker = penstock_worker.id and state = 'running') as held
  from penstock_worker
 where gone = 0
 order by id;
