-- Serves claim, count and why under a rate: what was started lately, of a limit and a key.
select id, boot, at, made_at, jobs
  from penstock.start
 where queue = %(queue)s
   and task = %(task)s
   and per_key = %(per_key)s
   and key = %(key)s;
