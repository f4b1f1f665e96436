-- Renew the leases of workers, all children of a supervisor in one call. Answers which of them had been
-- given up, and which of their jobs somebody asked to cancel.
create or replace function penstock.renew(
    p_workers text[],
    p_leases double precision[],
    p_claimed_at double precision[],
    p_declared text[],
    p_lease_time double precision
) returns table (lapsed text, cancelled uuid)
language plpgsql
set enable_seqscan = off
set jit = off
set lock_timeout = '4s'
as $$
begin
    -- Locked in id order, so that two renewals cannot deadlock.
    return query
    with locked as materialized (
        select w.id, w.gone from penstock.worker w where w.id = any(p_workers) order by w.id for update
    )
    select l.id, null::uuid from locked l where l.gone > 0;
    insert into penstock.worker as w (id, alive_since, alive_until, lease, claimed_at, declared)
    select t.id, p_lease_time, p_lease_time + t.lease, t.lease, t.claimed_at, t.declared
      from unnest(p_workers, p_leases, p_claimed_at, p_declared) as t (id, lease, claimed_at, declared)
     order by t.id
        on conflict (id) do update
       set alive_since = case when w.gone > 0 or w.alive_until <= p_lease_time then p_lease_time else w.alive_since end,
           alive_until = excluded.alive_until,
           lease = excluded.lease,
           gone = 0,
           claimed_at = coalesce(excluded.claimed_at, w.claimed_at),
           declared = excluded.declared;
    return query
    select null::text, j.id
      from penstock.job j
     where j.worker = any(p_workers) and j.state = 'running' and j.cancelled;
    return query
    select null::text, encode(substr(penstock.ids_in(l.firsts, l.counts), 16 * place + 1, 16), 'hex')::uuid
      from penstock.lease l, generate_series(0, length(l.marks) - 1) as place
     where l.worker = any(p_workers)
       and position('\x02'::bytea in l.marks) > 0
       and get_byte(l.marks, place) = 2;
    -- Without waiting for the disk: a renewal that is lost in a crash is made again.
    perform set_config('synchronous_commit', 'off', true);
end
$$;
