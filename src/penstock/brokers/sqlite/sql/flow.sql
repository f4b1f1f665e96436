-- A flow as it stands.
select id, name, find, state, created_at, ended_at from penstock_flow where id = ?;
