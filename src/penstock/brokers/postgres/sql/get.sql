-- The job's own row.
select * from penstock.job where id = %s;
