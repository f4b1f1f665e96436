-- Serves migrate: one process at a time builds, and the others go on without. It takes as long as it takes,
-- but waits for others only for so long.
select case when pg_try_advisory_lock(4855284205)
            then set_config('statement_timeout', '0', false)
                 || set_config('lock_timeout', %(locks)s, false) is not null
            else false end;
