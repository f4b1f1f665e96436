-- Serves find: jobs with derived ids, which hold no time, in the order they were enqueued.
create index penstock_job_derived on penstock_job (enqueued_at, id) where id >= x'ff000000000000000000000000000000';
create index penstock_job_derived_ended on penstock_job (enqueued_at, id)
 where id >= x'ff000000000000000000000000000000' and state in ('failed', 'cancelled');
create index penstock_history_derived on penstock_history (enqueued_at, job)
 where job >= x'ff000000000000000000000000000000';
