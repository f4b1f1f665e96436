-- Ready at once, counters at zero.
update penstock_job
   set state = 'ready',
       run_at = :now,
       minute = 0,
       failures = 0,
       lapses = 0,
       repeats = 0,
       ended_at = null,
       reason = null,
       error = null
 where id = :id;
