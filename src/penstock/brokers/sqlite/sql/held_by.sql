-- Serves recover and renew: the rows that a worker holds.
select * from penstock_job where worker = ? and state = 'running';
