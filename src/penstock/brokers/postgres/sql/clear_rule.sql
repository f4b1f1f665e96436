-- Take a rule back.
delete from penstock.rule
 where kind = %(kind)s
   and queue = %(queue)s
   and task = %(task)s
   and version = %(version)s
   and tag = %(tag)s
   and tag_value = %(tag_value)s
   and key = %(key)s
   and per_key = %(per_key)s
   and (until is null or until > %(now)s);
