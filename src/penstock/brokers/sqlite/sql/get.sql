-- The job's own row.
select * from penstock_job where id = ?;
