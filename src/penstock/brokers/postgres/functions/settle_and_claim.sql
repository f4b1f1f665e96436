-- Settle the successes of one lease and claim, in one round trip and one commit. The first row of the
-- answer, without a lane, has what succeed answered in `bodies`.
--
-- With p_node, the jobs are all of one node of a flow. If the node has more jobs left than these, they
-- are counted off, and nobody is freed by that. Else this raises PN003 and nothing is done: the caller
-- settles in another way. The flow's row is locked last, for as short as possible: others settle jobs of
-- the same flow.
create or replace function penstock.settle_and_claim(
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
    p_queues integer[],
    p_shares integer[],
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
    if p_node is not null then
        -- Without a lock, so only a hint: it saves writing everything only to roll it back.
        perform from penstock.node n where n.id = p_node and n.jobs_left > v_jobs;
        if not found then
            raise exception using errcode = 'PN003', message = 'these seem the last jobs of their node';
        end if;
    end if;
    bodies := penstock.succeed(
        p_worker, p_settled_lease, p_claimed_at, p_places, p_ids, p_ended, p_enqueued, p_started,
        p_bodies, p_results, p_keep_until, p_relaxed
    );
    if p_node is not null and bodies <> decode(repeat('01', v_jobs), 'hex') then
        raise exception using errcode = 'PN003', message = 'some of these are stale';
    end if;
    news := 'settled';
    return next;
    return query select * from penstock.claim(
        p_worker, p_declared, p_lease, p_listens, p_lanes, p_tasks, p_sizes,
        p_queues, p_shares, p_guesses, p_floors, p_row_floors,
        p_limit, p_now, p_lease_time
    );
    if p_node is not null then
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
    end if;
end
$$;
