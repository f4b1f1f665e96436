-- Serves enqueue: a lane is written down at its first use, and what every job of it has indexed.
-- Read first: an update that changes nothing would still lock the row until the end.
insert into penstock.lane as l (hash, queue, task, version, priority, runs_on, search)
select %(hash)s, %(queue)s, %(task)s, %(version)s, %(priority)s, %(runs_on)s, %(search)s
    on conflict (hash) do update
   set search = array_to_string(array(
        select unnest(string_to_array(l.search, ','))
        intersect
        select unnest(string_to_array(excluded.search, ','))
        order by 1
   ), ',')
 where l.search <> excluded.search;
