-- Take a rule back.
delete from penstock.rule
 where kind = %(kind)s
   and queue = %(queue)s
   and task = %(task)s
   and (until is null or until > %(now)s);
