-- Store a flow and its nodes; its jobs are stored beside it. {"id", "name", "find", "state", "jobs",
-- "nodes": [{id, place, task, jobs, on_failure, needs: [ids], members: [[first, last]]}]}. Answers
-- whether it is new: whoever sends it at the same moment waits for the other, and is told so.
create or replace function penstock.enqueue_flow(p_flow jsonb, p_now double precision)
returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    insert into penstock.flow (id, name, find, state, created_at, jobs_left)
    values (
        (p_flow ->> 'id')::uuid, p_flow ->> 'name', p_flow ->> 'find',
        convert_to(p_flow ->> 'state', 'UTF8'), p_now, (p_flow ->> 'jobs')::bigint
    )
        on conflict do nothing;
    if not found then
        return false;
    end if;
    insert into penstock.node (id, flow, place, task, jobs, on_failure, needs_left, jobs_left, freed)
    select t.id, (p_flow ->> 'id')::uuid, t.place, t.task, t.jobs, t.on_failure,
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
    return true;
end
$$;
