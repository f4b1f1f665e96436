-- Forget jobs and flows before their time.

-- name: delete
-- Forget a job's row: it succeeded, or is not to be kept.
delete from penstock.job where id = %s;

-- name: forget_bodies
-- Arguments and results of a range of jobs go, the record that they ran stays.
update penstock.history
   set body = null, result = null
 where job between %(first)s and %(last)s
   and (body is not null or result is not null);

-- name: forget_notes
-- The notes of a range of jobs.
delete from penstock.note where job between %(first)s and %(last)s;

-- name: succeeded_between
-- As succeeded, of a range of jobs.
select *
  from penstock.history
 where job between %(first)s and %(last)s
   and kind = 'attempt'
   and state = 'succeeded'
   and body is not null
 order by job;

-- name: forget_flow
-- A flow, after all that belongs to it.
delete from penstock.flow where id = %s;

-- name: forget_found
-- What a flow is found by.
delete from penstock.find where flow = %s;

-- name: forget_members
-- Of a flow as a whole.
delete from penstock.member
 where node in (select id from penstock.node where flow = %s);

-- name: forget_needs
-- Of a flow as a whole.
delete from penstock.need
 where node in (select id from penstock.node where flow = %s);

-- name: forget_nodes
-- Of a flow as a whole.
delete from penstock.node where flow = %s;
