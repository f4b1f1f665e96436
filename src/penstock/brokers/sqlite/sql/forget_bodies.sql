-- Serves delete: as forget_body, of a range of jobs.
update penstock_history
   set body = null, result = null
 where job between :first and :last
   and (body is not null or result is not null);
