-- Serves renew: what a worker holds that somebody asked to cancel.
select id from penstock_job where worker = ? and state = 'running' and cancelled = 1;
