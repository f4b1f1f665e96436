-- As settle_and_claim, for successes of jobs of one node, if it has more jobs left than these: then
-- they are counted, and nobody is freed. Else PN003, and nothing was done. The flow is locked last:
-- others settle in it, too.
create or replace function penstock.settle_members_and_claim(
    p_settled_lease bigint,
    p_claimed_at double precision,
    p_places integer[],
    p_ids uuid[],
    p_ended double precision[],
    p_enqueued double precision[],
    p_started double precision[],
    p_bodies bytea[],
    p_results bytea[],
    p_keep_until double precision[],
    p_relaxed boolean,
    p_worker text,
    p_declared text,
    p_lease double precision,
    p_listens boolean,
    p_lanes bigint[],
    p_tasks integer[],
    p_sizes integer[],
    p_guesses integer[],
    p_floors uuid[],
    p_row_floors double precision[],
    p_limit integer,
    p_now double precision,
    p_lease_time double precision,
    p_flow uuid,
    p_node uuid
) returns table (
    lane bigint, lease bigint, firsts bytea, counts bytea, lengths bytea, bodies bytea,
    job_rows uuid[], news text
)
language plpgsql
set lock_timeout = '4s'
set enable_seqscan = off
set jit = off
as $$
declare
    v_jobs integer := array_length(p_ids, 1);
begin
    -- A look without a lock, so no more than a hint: to write all of it only to undo it costs as much
    -- as the rest. What it lets through is counted below.
    perform from penstock.node n where n.id = p_node and n.jobs_left > v_jobs;
    if not found then
        raise exception using errcode = 'PN003', message = 'these seem the last jobs of their node';
    end if;
    bodies := penstock.succeed(
        p_worker, p_settled_lease, p_claimed_at, p_places, p_ids, p_ended, p_enqueued, p_started,
        p_bodies, p_results, p_keep_until, p_relaxed
    );
    if bodies <> decode(repeat('01', v_jobs), 'hex') then
        raise exception using errcode = 'PN003', message = 'some of these are stale';
    end if;
    news := 'settled';
    return next;
    return query select * from penstock.claim(
        p_worker, p_declared, p_lease, p_listens, p_lanes, p_tasks, p_sizes, p_guesses, p_floors, p_row_floors,
        p_limit, p_now, p_lease_time
    );
    update penstock.flow f
       set jobs_left = f.jobs_left - v_jobs
     where f.id = p_flow;
    update penstock.node n
       set jobs_left = n.jobs_left - v_jobs
     where n.id = p_node
       and n.flow = p_flow
       and n.jobs_left > v_jobs;
    if not found then
        raise exception using errcode = 'PN003', message = 'these are the last jobs of their node';
    end if;
end
$$;
