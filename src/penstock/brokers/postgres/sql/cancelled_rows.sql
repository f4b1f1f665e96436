-- Serves renew: what a worker holds that somebody asked to cancel.
select id from penstock.job where worker = %s and state = 'running' and cancelled;
