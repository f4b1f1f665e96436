-- Serves set_rule: the workers that are alive, and whether they will say when they heard of it.
select id, listens from penstock.worker where gone = 0 and alive_until > %s;
