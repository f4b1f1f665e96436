-- Delete evidence (penstock.is_evidence) from before p_before and up to a position; answers how many rows.
-- Security definer, for logins that may not delete any themselves: nothing younger than 400 days goes,
-- whatever they ask for.
create or replace function penstock.prune_evidence(p_before double precision, p_lowest bigint) returns bigint
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_rows bigint;
begin
    delete from penstock.history
     where at < least(p_before, extract(epoch from clock_timestamp()) - 400 * 86400)
       and position <= p_lowest
       and kind <> 'attempt'
       and penstock.is_evidence(kind, data);
    get diagnostics v_rows = row_count;
    return v_rows;
end
$$;

revoke all on function penstock.prune_evidence(double precision, bigint) from public;

-- Whether this login may delete and change evidence: it owns the history, or is a member of its owner.
create or replace function penstock.may_prune_evidence() returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select pg_catalog.pg_has_role(current_user, c.relowner, 'member')
      from pg_catalog.pg_class c
     where c.oid = 'penstock.history'::pg_catalog.regclass
$$;
