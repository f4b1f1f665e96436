-- Two roles for every store of this server: penstock_user may do all that producers and workers do,
-- penstock_admin may also block and unblock. Whoever runs this may make roles and owns the schema.
do $$
declare
    v_owner text := (select relowner::regrole::text from pg_class where oid = 'penstock.meta'::regclass);
begin
    if not exists (select 1 from pg_roles where rolname = 'penstock_user') then
        create role penstock_user nologin;
    end if;
    if not exists (select 1 from pg_roles where rolname = 'penstock_admin') then
        create role penstock_admin nologin;
    end if;
    -- What later migrations and upkeep make, too.
    execute format('alter default privileges for role %s in schema penstock '
                   'grant select, insert, update, delete on tables to penstock_user', v_owner);
    execute format('alter default privileges for role %s in schema penstock '
                   'grant usage, select on sequences to penstock_user', v_owner);
    execute format('alter default privileges for role %s in schema penstock '
                   'grant execute on functions to penstock_user', v_owner);
end
$$;
grant penstock_user to penstock_admin;
grant usage on schema penstock to penstock_user;
grant select, insert, update, delete on all tables in schema penstock to penstock_user;
-- Of these only what is done to them: an earlier run of this may have granted more. Parcels are
-- never changed, but locked, and a lock takes the right to change something; and published, which
-- changes their lane.
revoke insert, update, delete on penstock.meta, penstock.lane from penstock_user;
revoke update on penstock.sent, penstock.tag, penstock.tally, penstock.parcel, penstock.history from penstock_user;
grant insert, update (value) on penstock.meta to penstock_user;
grant insert, update (search) on penstock.lane to penstock_user;
grant update (jobs, lane) on penstock.parcel to penstock_user;
grant update (body, result, keep_until) on penstock.history to penstock_user;
grant usage, select on all sequences in schema penstock to penstock_user;
grant execute on all functions in schema penstock to penstock_user;
