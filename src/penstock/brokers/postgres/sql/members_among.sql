-- Serves cancel, retry and delete: those of these jobs that stand still in a flow, and may be freed,
-- cancelled or revived by whoever has locked it.
select j.id, j.body
  from penstock.job j
 where j.id = any(%s)
   and j.state in ('waiting', 'failed', 'cancelled')
   and position('"flow":'::bytea in j.body) > 0;
