-- Serves the benchmark: first start, last end and number of the attempts that ended.
select min(started_at), max(at), count(*)
  from penstock.history
 where kind = 'attempt';
