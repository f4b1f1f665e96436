-- Serves doctor: attempts that ended since.
select count(*) as jobs
  from penstock.history
 where position > %(position)s
   and kind = 'attempt';
