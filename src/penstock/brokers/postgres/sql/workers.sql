-- Workers as they stand.

-- name: workers
-- Every worker that was not given up, with how many rows it holds.
select id, boot, alive_until, claimed_at, declared,
       (select count(*) from penstock.job where job.worker = w.id and state = 'running') as held
  from penstock.worker w
 where gone = 0
 order by id;
