-- Serves cancel, retry and delete: the job's own row, about to be changed.
select * from penstock.job where id = %s for update;
