-- Four roles for all stores of this server, each with the rights of those before it: penstock_viewer reads;
-- penstock_producer enqueues; penstock_worker does all that workers, and people who operate, do;
-- penstock_admin may also block and unblock. To be run by the login that owns the schema, which needs
-- CREATEROLE (no superuser) the first time.
do $$
declare
    v_owner text := (select relowner::regrole::text from pg_class where oid = 'penstock.meta'::regclass);
    v_role text;
begin
    foreach v_role in array array['penstock_viewer', 'penstock_producer', 'penstock_worker', 'penstock_admin'] loop
        if not exists (select 1 from pg_roles where rolname = v_role) then
            execute format('create role %I nologin', v_role);
        end if;
    end loop;
    -- For tables, sequences and functions that are created later, too.
    execute format('alter default privileges for role %s in schema penstock '
                   'grant select on tables to penstock_viewer', v_owner);
    execute format('alter default privileges for role %s in schema penstock '
                   'grant insert, update, delete on tables to penstock_worker', v_owner);
    execute format('alter default privileges for role %s in schema penstock '
                   'grant usage, select on sequences to penstock_producer', v_owner);
    execute format('alter default privileges for role %s in schema penstock '
                   'grant execute on functions to penstock_worker', v_owner);
end
$$;
grant penstock_viewer to penstock_producer;
grant penstock_producer to penstock_worker;
grant penstock_worker to penstock_admin;

grant usage on schema penstock to penstock_viewer;
grant select on all tables in schema penstock to penstock_viewer;
grant execute on function penstock.jobs_by_id, penstock.jobs_by_unique_key, penstock.jobs_by_tag
   to penstock_viewer;

-- What an enqueue needs, whatever its options.
grant usage, select on all sequences in schema penstock to penstock_producer;
grant insert on penstock.parcel, penstock.sent, penstock.sent_derived, penstock.sent_lasting,
                penstock.tag, penstock.tally, penstock.lane, penstock.job, penstock.unique_key,
                penstock.history, penstock.flow, penstock.node, penstock.need, penstock.find, penstock.member,
                penstock.batch, penstock.sealed_app to penstock_producer;
grant update on penstock.sealed_app to penstock_producer;
grant update (search) on penstock.lane to penstock_producer;
grant update, delete on penstock.unique_key to penstock_producer;
grant update on penstock.batch to penstock_producer;

grant insert, update, delete on all tables in schema penstock to penstock_worker;
-- On these only what Penstock needs; an earlier version of this script may have granted more. On
-- penstock.parcel, `for update` needs the right to update some column, and to commit a staged write
-- changes the lane.
revoke insert, update, delete on penstock.meta, penstock.lane from penstock_worker;
revoke update on penstock.sent, penstock.tag, penstock.tally, penstock.parcel, penstock.history from penstock_worker;
grant insert, update (value) on penstock.meta to penstock_worker;
grant insert, update (search) on penstock.lane to penstock_worker;
grant update (jobs, lane) on penstock.parcel to penstock_worker;
grant update (body, result, keep_until) on penstock.history to penstock_worker;
grant execute on all functions in schema penstock to penstock_worker;
