-- Ready at once, or waiting for its needs, counters at zero; a time to start by that is over does not
-- end it again.
update penstock.job
   set state = %(state)s,
       run_at = %(now)s,
       minute = 0,
       failures = 0,
       lapses = 0,
       repeats = 0,
       ended_at = null,
       keep_until = null,
       reason = null,
       error = null,
       expires_at = case when expires_at <= %(now)s then null else expires_at end
 where id = %(id)s;
