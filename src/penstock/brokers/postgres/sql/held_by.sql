-- Serves recover and renew: the rows that a worker holds.
select * from penstock.job where worker = %s and state = 'running';
