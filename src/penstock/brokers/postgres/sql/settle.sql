-- Move a job's row on: ready again, failed or cancelled. The attempt is the fence.
update penstock.job
   set state = %(state)s,
       run_at = %(run_at)s,
       minute = %(minute)s,
       failures = %(failures)s,
       lapses = %(lapses)s,
       repeats = %(repeats)s,
       ended_at = %(ended_at)s,
       keep_until = %(keep_until)s,
       reason = %(reason)s,
       error = %(error)s,
       worker = null,
       claimed_at = null,
       cancelled = false
 where id = %(id)s
   and attempt = %(attempt)s;
