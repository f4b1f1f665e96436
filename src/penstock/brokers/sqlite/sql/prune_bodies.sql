-- Serves prune: arguments and results whose own time is over; that they ran stays recorded.
update penstock_history
   set body = null, result = null, keep_until = null
 where position in (
    select position
      from penstock_history
     where keep_until <= :now
     limit :most
 );
