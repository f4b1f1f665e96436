-- Serves claim by keys in turn: due rows of one key after a place, without those that a rule by tag
-- keeps back.
select j.run_at, j.id, j.key
  from penstock_job j
  join penstock_lane l on l.hash = j.lane
 where j.lane = :lane
   and j.state = 'ready'
   and coalesce(j.key, '') = :turn
   and j.run_at <= :now
   and (j.run_at, j.id) > (:run_at, :id)
   and (not :ruled
        or not exists (
            select 1
              from penstock_rule r
             where r.kind in ('block', 'pause')
               and r.tag <> ''
               and r.queue in ('', l.queue)
               and r.task in ('', l.task)
               and r.version in (-1, l.version)
               and r.key in ('', j.key)
               and exists (select 1 from penstock_tag t
                            where t.name = r.tag and t.value = r.tag_value and t.job = j.id)
               and (r.until is null or r.until > :now)
        ))
 order by j.run_at, j.id
 limit :limit;
