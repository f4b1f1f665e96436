-- Serves claim: the words behind the hashes of lanes.
select hash, queue, task, version, priority, runs_on, search
  from penstock.lane
 where hash = any(%s);
