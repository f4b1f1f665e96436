-- Store a flow and its nodes; the caller stores its jobs in the same transaction. Takes
-- {"id", "name", "find", "state", "state_ttl", "jobs",
--  "nodes": [{id, place, task, jobs, on_failure, needs: [ids], members: [[first, last]]}],
--  "last": [nodes that no other of these needs], "found": [hashes of its properties],
--  "queued": the data of its first event}.
-- Answers whether it is new. Of two senders at the same moment, the second waits for the first.
create or replace function penstock.enqueue_flow(p_flow jsonb, p_now double precision)
returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    insert into penstock.flow (id, name, find, state, state_ttl, state_until, created_at, jobs_left)
    values (
        (p_flow ->> 'id')::uuid, p_flow ->> 'name', p_flow ->> 'find',
        convert_to(p_flow ->> 'state', 'UTF8'), (p_flow ->> 'state_ttl')::double precision,
        p_now + (p_flow ->> 'state_ttl')::double precision, p_now, (p_flow ->> 'jobs')::bigint
    )
        on conflict do nothing;
    if not found then
        return false;
    end if;
    perform penstock.put_nodes(p_flow, 0);
    perform penstock.put_found(p_flow, p_now);
    return true;
end
$$;

-- Add the nodes that a job spawned to its flow, or store them as a new one. Nodes that need the node of
-- that job, and still wait, now need the last of these as well.
create or replace function penstock.spawn_flow(p_flow jsonb, p_parent uuid, p_now double precision)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
    v_waiting uuid[];
    v_new boolean;
begin
    insert into penstock.flow as f (id, name, find, state, state_ttl, state_until, created_at, jobs_left)
    values (
        (p_flow ->> 'id')::uuid, p_flow ->> 'name', p_flow ->> 'find',
        convert_to(p_flow ->> 'state', 'UTF8'), (p_flow ->> 'state_ttl')::double precision,
        p_now + (p_flow ->> 'state_ttl')::double precision, p_now, (p_flow ->> 'jobs')::bigint
    )
        on conflict (id) do update
       set jobs_left = f.jobs_left + excluded.jobs_left, ended_at = null
    returning f.xmax = 0 into v_new;
    if v_new then
        perform penstock.put_found(p_flow, p_now);
    end if;
    perform penstock.put_nodes(p_flow, (
        select coalesce(max(n.place) + 1, 0)
          from penstock.node n
         where n.flow = (p_flow ->> 'id')::uuid
    ));
    v_waiting := array(
        select n.id
          from penstock.need e
          join penstock.node n on n.id = e.node
         where e.need = p_parent
           and not n.freed
    );
    insert into penstock.need (node, place, need)
    select w.id, (select max(e.place) from penstock.need e where e.node = w.id) + l.place, l.id::uuid
      from unnest(v_waiting) as w (id),
           jsonb_array_elements_text(p_flow -> 'last') with ordinality as l (id, place);
    update penstock.node n
       set needs_left = n.needs_left + jsonb_array_length(p_flow -> 'last')
     where n.id = any(v_waiting);
end
$$;

-- The properties of a new flow, and its first event.
create or replace function penstock.put_found(p_flow jsonb, p_now double precision) returns void
language sql
as $$
    insert into penstock.find (property, flow)
    select p.property::uuid, (p_flow ->> 'id')::uuid
      from jsonb_array_elements_text(p_flow -> 'found') as p (property);
    insert into penstock.history (kind, at, job, data, login)
    select 'flow', p_now, (p_flow ->> 'id')::uuid, convert_to(p_flow ->> 'queued', 'UTF8'), session_user
     where p_flow ? 'queued';
$$;

-- The nodes of a flow, numbered from p_place on, with their needs and members.
create or replace function penstock.put_nodes(p_flow jsonb, p_place integer) returns void
language sql
as $$
    insert into penstock.node (id, flow, place, task, jobs, on_failure, needs_left, jobs_left, freed)
    select t.id, (p_flow ->> 'id')::uuid, p_place + t.place, t.task, t.jobs, t.on_failure,
           jsonb_array_length(t.needs), t.jobs, jsonb_array_length(t.needs) = 0
      from jsonb_to_recordset(p_flow -> 'nodes') as t (
               id uuid, place integer, task text, jobs bigint, on_failure text, needs jsonb
           );
    insert into penstock.need (node, place, need)
    select t.id, e.place - 1, e.need::uuid
      from jsonb_to_recordset(p_flow -> 'nodes') as t (id uuid, needs jsonb),
           jsonb_array_elements_text(t.needs) with ordinality as e (need, place);
    insert into penstock.member (node, place, first, last)
    select t.id, m.place - 1, (m.span ->> 0)::uuid, (m.span ->> 1)::uuid
      from jsonb_to_recordset(p_flow -> 'nodes') as t (id uuid, members jsonb),
           jsonb_array_elements(t.members) with ordinality as m (span, place);
$$;
