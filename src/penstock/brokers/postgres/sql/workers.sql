-- List workers.

-- name: workers
-- All workers that were not given up, with the number of rows that they hold.
select id, boot, alive_until, claimed_at, declared,
       (select count(*) from penstock.job where job.worker = w.id and state = 'running') as held
  from penstock.worker w
 where gone = 0
 order by id;
