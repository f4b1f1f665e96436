-- Forget a job's row: it succeeded, or is not to be kept.
delete from penstock.job where id = %s;
