-- Cancel jobs; and find what retry and delete change as well.

-- name: ask_cancel
-- A running job is told; its worker hears of it when it renews.
update penstock_job set cancelled = 1 where id = ?;

-- name: locked_row
-- Serves cancel, retry and delete: the job's own row, about to be changed. As get: a transaction
-- that writes has the file to itself.
select * from penstock_job where id = ?;

-- name: locked_leases
-- Serves cancel and delete: the leases that may hold jobs of a run of ids, about to be marked. The
-- ids of a run begin with the same 14 bytes; the caller checks.
select id, worker, lane, claimed_at, ids, lengths, bodies, marks, attempt, spared
  from penstock_lease
 where instr(ids, substr(?, 1, 14)) > 0;

-- name: locked_parcel
-- Serves cancel and delete: the parcel that would hold an id, about to be unpacked; as parcel_before.
select id, lane, jobs, lengths, bodies, attempt, spared
  from penstock_parcel
 where id between ? and ?
 order by id desc
 limit 1;

-- name: members_of
-- Serves cancel, retry and delete: all jobs of a flow.
select m.first, m.last
  from penstock_node n
  join penstock_member m on m.node = n.id
 where n.flow = ?
 order by m.first;

-- name: rows_between
-- Serves cancel, retry and delete of a whole flow: the rows of a range of jobs, about to be changed.
select *
  from penstock_job
 where id between :first and :last
   and state in (select value from json_each(:states))
 order by id;

-- name: parcels_between
-- Serves cancel and delete of a whole flow: the parcels that hold jobs of a range, about to be
-- unpacked. The first may begin before it, within its run of ids.
select id, lane, jobs, lengths, bodies, attempt, spared
  from penstock_parcel
 where id between :run and :last
 order by id;
