-- Delete jobs and flows.

-- name: delete
-- Delete a job's row: it succeeded, or is not to be kept.
delete from penstock.job where id = %s;

-- name: forget_lasting
-- Forget the lasting id of a job that is gone and was not done: the id may come again.
delete from penstock.sent_lasting where id = %s;

-- name: forget_bodies
-- Delete arguments and results of a range of jobs; that they ran stays recorded.
update penstock.history
   set body = null, result = null
 where job between %(first)s and %(last)s
   and (body is not null or result is not null);

-- name: forget_notes
-- Delete the notes of a range of jobs.
delete from penstock.note where job between %(first)s and %(last)s;

-- name: succeeded_between
-- As succeeded (get.sql), for a range of jobs.
select *
  from penstock.history
 where job between %(first)s and %(last)s
   and kind = 'attempt'
   and state = 'succeeded'
   and body is not null
 order by job;

-- name: forget_flow
-- Delete a flow, after everything that belongs to it.
delete from penstock.flow where id = %s;

-- name: forget_found
-- Delete the properties of a flow.
delete from penstock.find where flow = %s;

-- name: forget_members
-- Delete the members of all nodes of a flow.
delete from penstock.member
 where node in (select id from penstock.node where flow = %s);

-- name: forget_needs
-- Delete the needs of all nodes of a flow.
delete from penstock.need
 where node in (select id from penstock.node where flow = %s);

-- name: forget_nodes
-- Delete the nodes of a flow.
delete from penstock.node where flow = %s;
