-- Serves find: jobs with derived ids, which hold no time, in the order they were enqueued. That of the
-- history as in 0010.
create index job_derived on penstock.job (enqueued_at, id)
 where id >= 'ff000000-0000-0000-0000-000000000000';
create index job_derived_ended on penstock.job (enqueued_at, id)
 where id >= 'ff000000-0000-0000-0000-000000000000' and state in ('failed', 'cancelled');
do $$
begin
    execute format(
        'create index history_derived on %s penstock.history (enqueued_at, job)'
        ' where job >= ''ff000000-0000-0000-0000-000000000000''',
        case when exists (select 1 from penstock.history) then 'only' else '' end
    );
end
$$;
