-- Settle from SQL: a running job ends in the caller's own transaction.

-- End a job that this attempt holds: 'succeeded' with its result, or 'failed' with a text as its error. False,
-- and nothing is written, if the attempt does not hold it any more.
create or replace function penstock.settle(id uuid, attempt integer, state text, result jsonb default null)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
set lock_timeout = '4s'
as $$
declare
    v_id uuid := settle.id;
    v_attempt integer := settle.attempt;
    v_result bytea := convert_to(settle.result::text, 'UTF8');
    v_now double precision := extract(epoch from clock_timestamp());
    v_lease penstock.lease;
    v_place integer;
    v_job penstock.job;
    v_lane penstock.lane;
    v_body bytea;
    v_error text;
begin
    if settle.state is null or settle.state not in ('succeeded', 'failed') then
        perform penstock.refuse(format(
            'state %s: succeeded, with the result, or failed, with a text as its error',
            coalesce(quote_literal(left(settle.state, 60)), 'null')
        ));
    end if;
    -- A plain job runs out of a lease: it gets a row of its own, which is then settled as any other.
    select l.* into v_lease
      from penstock.lease l
     where l.attempt = v_attempt
       and position(uuid_send(v_id) in penstock.ids_in(l.firsts, l.counts)) % 16 = 1
     limit 1
       for update;
    if found then
        v_place := position(uuid_send(v_id) in penstock.ids_in(v_lease.firsts, v_lease.counts)) / 16;
        if get_byte(v_lease.marks, v_place) <> 1 then
            select b.body into v_body
              from penstock.bodies_of(length(v_lease.marks), v_lease.lengths, v_lease.bodies) b
             where b.place = v_place;
            insert into penstock.job (
                id, lane, state, run_at, attempt, spared, enqueued_at, claimed_at, worker, cancelled, body
            ) values (
                v_id, v_lease.lane, 'running', penstock.made_at(v_id), v_attempt, v_lease.spared,
                penstock.made_at(v_id), v_lease.claimed_at, v_lease.worker,
                get_byte(v_lease.marks, v_place) = 2, v_body
            );
            v_lease.marks := set_byte(v_lease.marks, v_place, 1);
            if v_lease.marks = decode(repeat('01', length(v_lease.marks)), 'hex') then
                delete from penstock.lease l where l.id = v_lease.id;
            else
                -- Its secrets do not stay in a lease that holds others.
                update penstock.lease l
                   set marks = v_lease.marks,
                       bodies = case when position('"secret"'::bytea in v_body) = 0 then l.bodies
                                else overlay(l.bodies
                                     placing decode(repeat('20', length(v_body)), 'hex')
                                     from 1 + penstock.total_of(l.lengths, v_place)) end
                 where l.id = v_lease.id;
            end if;
        end if;
    end if;
    select j.* into v_job
      from penstock.job j
     where j.id = v_id and j.state = 'running' and j.attempt = v_attempt
       for update;
    if not found then
        return false;
    end if;
    v_body := v_job.body;
    if position('"flow":'::bytea in v_body) > 0 then
        perform penstock.refuse(format(
            'job %s is in a flow: what its end sets free is counted where its task returns; use '
            'current_job().transaction() there', v_id
        ));
    end if;
    select l.* into v_lane from penstock.lane l where l.hash = v_job.lane;
    if v_result is not null and exists (
        select 1 from penstock.sealed_app s where s.app = v_lane.app
    ) then
        perform penstock.refuse(format(
            'job %s: its app encrypts its jobs, and SQL has no key: settle it without a result', v_id
        ));
    end if;
    if position('"secret"'::bytea in v_body) > 0 then
        v_body := convert_to(jsonb_set(
            penstock.json_of(v_body), '{args}', penstock.shown_arguments(penstock.json_of(v_body))
        )::text, 'UTF8');
        if v_body is null then
            perform penstock.refuse(format(
                'job %s: its arguments have a NUL, so that SQL cannot hide its secrets', v_id
            ));
        end if;
    end if;
    -- Who handed it out keeps a copy (a manager, of what its receivers hold).
    perform pg_notify('penstock', 'settled ' || v_id);
    -- What ended may have made room under a limit, or let the next job of its key go.
    if exists (select 1 from penstock.rule r where r.kind in ('limit', 'order')) then
        perform pg_notify('penstock', '');
    end if;
    if settle.state = 'succeeded' then
        return cardinality(penstock.succeed_rows(
            array[v_id], array[v_attempt], array[v_job.claimed_at], array[v_now],
            array[v_job.claimed_at], array[v_body], array[coalesce(v_result, 'null')],
            array[null::double precision]
        )) = 1;
    end if;
    v_error := coalesce(settle.result #>> '{}', 'failed by penstock.settle');
    update penstock.job j
       set state = 'failed', failures = j.failures + 1, ended_at = v_now, reason = 'error', error = v_error,
           body = v_body, worker = null, claimed_at = null, cancelled = false
     where j.id = v_id;
    delete from penstock.unique_key u
     where u.key = v_job.unique_key and u.job = v_id and u.until = 'ended';
    insert into penstock.tally (lane, state, minute, jobs)
    values (v_job.lane, 'running', 0, -1), (v_job.lane, 'failed', 0, 1);
    insert into penstock.history (
        kind, at, job, lane, attempt, failures, lapses, repeats, state, reason, key, enqueued_at, run_at,
        started_at, worker, tags, error, body, login
    ) values (
        'attempt', v_now, v_id, v_job.lane, v_attempt, v_job.failures + 1, v_job.lapses, v_job.repeats,
        'failed', 'error', v_job.key, v_job.enqueued_at, v_job.run_at, v_job.claimed_at, v_job.worker,
        v_job.tags, v_error, v_body, session_user
    );
    return true;
end
$$;
revoke all on function penstock.settle(uuid, integer, text, jsonb) from public;
