-- What jobs note while they run, and the state of flows.

-- name: note
-- Keep the latest note of a kind and name.
insert into penstock.note (job, kind, name, at, value)
values (%(job)s, %(kind)s, %(name)s, %(at)s, %(value)s)
    on conflict (job, kind, name) do update set at = excluded.at, value = excluded.value;

-- name: notes
-- What a job noted, oldest first.
select kind, name, value, at
  from penstock.note
 where job = %(job)s
   and (%(kind)s::text is null or kind = %(kind)s)
 order by at, id;

-- name: locked_state
-- The state of a flow, about to be merged into.
select state from penstock.flow where id = %s for update;

-- name: put_state
-- The state of a flow, with what a member merged into it.
update penstock.flow set state = %(state)s where id = %(id)s;
