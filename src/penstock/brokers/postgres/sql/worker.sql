-- Serves claim, renew and recover.
select boot, alive_since, alive_until, lease, gone from penstock.worker where id = %s;
