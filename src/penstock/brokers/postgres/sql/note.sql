-- Notes of running jobs, and the state of flows.

-- name: note
-- Store a note; the latest of a kind and name is kept.
insert into penstock.note (job, kind, name, at, value)
values (%(job)s, %(kind)s, %(name)s, %(at)s, %(value)s)
    on conflict (job, kind, name) do update set at = excluded.at, value = excluded.value;

-- name: notes
-- The notes of a job, oldest first.
select kind, name, value, at
  from penstock.note
 where job = %(job)s
   and (%(kind)s::text is null or kind = %(kind)s)
 order by at, id;

-- name: locked_state
-- The state of a flow, locked.
select state, state_ttl, state_until from penstock.flow where id = %s for update;

-- name: put_state
-- Store the merged state of a flow.
update penstock.flow set state = %(state)s, state_until = %(until)s where id = %(id)s;
