-- Forget jobs and flows before their time.

-- name: delete
-- Forget a job's row: it succeeded, or is not to be kept.
delete from penstock_job where id = ?;

-- name: forget_lasting
-- A job with a lasting id is gone and was not done: the id may come again.
delete from penstock_sent where id = ? and id >= x'ff80';

-- name: forget_bodies
-- Arguments and results of a range of jobs go, the record that they ran stays.
update penstock_history
   set body = null, result = null
 where job between :first and :last
   and (body is not null or result is not null);

-- name: forget_notes
-- The notes of a range of jobs.
delete from penstock_note where job between :first and :last;

-- name: succeeded_between
-- As succeeded, of a range of jobs.
select *
  from penstock_history
 where job between :first and :last
   and kind = 'attempt'
   and state = 'succeeded'
   and body is not null
 order by job;

-- name: forget_flow
-- A flow, after all that belongs to it.
delete from penstock_flow where id = ?;

-- name: forget_found
-- What a flow is found by.
delete from penstock_find where flow = ?;

-- name: forget_members
-- Of a flow as a whole.
delete from penstock_member
 where node in (select id from penstock_node where flow = ?);

-- name: forget_needs
-- Of a flow as a whole.
delete from penstock_need
 where node in (select id from penstock_node where flow = ?);

-- name: forget_nodes
-- Of a flow as a whole.
delete from penstock_node where flow = ?;
