-- Serves the benchmark: attempts that ended within a time.
select count(*)
  from penstock.history
 where kind = 'attempt'
   and at >= %s
   and at < %s;
