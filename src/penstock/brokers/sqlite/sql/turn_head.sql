-- Serves claim in an ordered queue: the first ready job of a key in a lane, by id; `ruled` if a rule
-- by tag keeps it back. That it is one of three states is what the index is asked by.
select j.id, j.run_at,
       :ruled
       and exists (
            select 1
              from penstock_lane l
              join penstock_rule r
                on r.kind in ('block', 'pause')
               and r.tag <> ''
               and r.queue in ('', l.queue)
               and r.task in ('', l.task)
               and r.version in (-1, l.version)
               and r.key in ('', j.key)
             where l.hash = j.lane
               and exists (select 1 from penstock_tag t
                            where t.name = r.tag and t.value = r.tag_value and t.job = j.id)
               and (r.until is null or r.until > :now)
       ) as ruled
  from penstock_job j
 where j.lane = :lane
   and j.key = :key
   and j.state = 'ready'
   and j.state in ('failed', 'ready', 'running')
 order by j.id
 limit 1;
