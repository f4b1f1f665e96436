-- One lease's successes and the next claim, in one round trip and one commit. The first row of the
-- answer, without a lane, carries what succeed answered, in `bodies`.
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
    p_guesses integer[],
    p_floors uuid[],
    p_row_floors double precision[],
    p_limit integer,
    p_now double precision,
    p_lease_time double precision
) returns table (
    lane bigint, lease bigint, firsts bytea, counts bytea, lengths bytea, bodies bytea,
    job_rows uuid[], news text
)
language plpgsql
set lock_timeout = '4s'
as $$
begin
    bodies := penstock.succeed(
        p_worker, p_settled_lease, p_claimed_at, p_places, p_ids, p_ended, p_enqueued, p_started,
        p_bodies, p_results, p_keep_until, p_relaxed
    );
    news := 'settled';
    return next;
    return query select * from penstock.claim(
        p_worker, p_declared, p_lease, p_listens, p_lanes, p_tasks, p_sizes, p_guesses, p_floors, p_row_floors,
        p_limit, p_now, p_lease_time
    );
end
$$;
