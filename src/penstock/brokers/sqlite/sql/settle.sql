-- Move a job's row on: ready again, failed or cancelled. The attempt is the fence.
update penstock_job
   set state = :state,
       run_at = :run_at,
       minute = :minute,
       failures = :failures,
       lapses = :lapses,
       repeats = :repeats,
       ended_at = :ended_at,
       keep_until = :keep_until,
       reason = :reason,
       error = :error,
       worker = null,
       claimed_at = null,
       cancelled = 0
 where id = :id
   and attempt = :attempt;
