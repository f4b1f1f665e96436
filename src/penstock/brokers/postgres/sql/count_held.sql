-- Serves count where a rule is about single jobs: how many due rows of each lane it keeps back.
select j.lane, count(*) as jobs
  from penstock.job j
  join penstock.lane l on l.hash = j.lane
 where j.state = 'ready'
   and j.run_at <= %(now)s
   and exists (
        select 1
          from penstock.rule r
         where r.kind in ('block', 'pause')
           and (r.key <> '' or r.tag <> '')
           and r.queue in ('', l.queue)
           and r.task in ('', l.task)
           and r.version in (-1, l.version)
           and r.key in ('', j.key)
           and (r.tag = ''
                or exists (select 1 from penstock.tag t
                            where t.name = r.tag and t.value = r.tag_value and t.job = j.id))
           and (r.until is null or r.until > %(now)s)
       )
 group by j.lane;
