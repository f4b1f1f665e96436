-- Serves renew: all children of a supervisor in one call.
select lapsed, cancelled from penstock.renew(%s, %s, %s, %s, %s);
