-- Serves cancel, retry and delete: the job's own row, about to be changed. As get: a transaction
-- that writes has the file to itself.
select * from penstock.job where id = %s for update;
