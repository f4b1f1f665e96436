-- Serves delete: as forget_body, of a range of jobs.
update penstock.history
   set body = null, result = null
 where job between %(first)s and %(last)s
   and (body is not null or result is not null);
