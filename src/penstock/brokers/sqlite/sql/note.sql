-- What jobs note while they run, and the state of flows.

-- name: note
-- Keep the latest note of a kind and name.
insert into penstock_note (job, kind, name, at, value)
values (:job, :kind, :name, :at, :value)
    on conflict (job, kind, name) do update set at = excluded.at, value = excluded.value;

-- name: notes
-- What a job noted, oldest first.
select kind, name, value, at
  from penstock_note
 where job = :job
   and (:kind is null or kind = :kind)
 order by at, id;

-- name: locked_state
-- The state of a flow, about to be merged into. One writer at a time has the file to itself, so a
-- look is enough.
select state, state_ttl, state_until from penstock_flow where id = ?;

-- name: put_state
-- The state of a flow, with what a member merged into it.
update penstock_flow set state = :state, state_until = :until where id = :id;
