-- Two roles for all stores of this server: penstock_user for producers and workers, penstock_admin, who
-- may also block and unblock. To be run by a login that may create roles and owns the schema.
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
    -- For tables, sequences and functions that are created later, too.
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
-- On these only what Penstock needs; an earlier version of this script may have granted more. On
-- penstock.parcel, `for update` needs the right to update some column, and to commit a staged write
-- changes the lane.
revoke insert, update, delete on penstock.meta, penstock.lane from penstock_user;
revoke update on penstock.sent, penstock.tag, penstock.tally, penstock.parcel, penstock.history from penstock_user;
grant insert, update (value) on penstock.meta to penstock_user;
grant insert, update (search) on penstock.lane to penstock_user;
grant update (jobs, lane) on penstock.parcel to penstock_user;
grant update (body, result, keep_until) on penstock.history to penstock_user;
grant usage, select on all sequences in schema penstock to penstock_user;
grant execute on all functions in schema penstock to penstock_user;
