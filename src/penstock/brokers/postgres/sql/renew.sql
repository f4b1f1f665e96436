-- Keep workers alive for another lease; see functions/renew.sql.
select lapsed, cancelled from penstock.renew(%s, %s, %s, %s, %s);
