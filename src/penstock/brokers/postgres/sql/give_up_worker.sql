-- Serves recover.
update penstock.worker set gone = %(now)s, alive_until = 0 where id = %(id)s;
