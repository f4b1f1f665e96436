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
grant usage, select on all sequences in schema penstock to penstock_user;
grant execute on all functions in schema penstock to penstock_user;
