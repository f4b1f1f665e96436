-- Serves prune: jobs that ended and were kept long enough; of those in flows, their place in it.
select id, lane, state, minute,
       case when position('"flow":'::bytea in body) > 0 then body end as body
  from penstock.job
 where state in ('failed', 'cancelled')
   and case when keep_until is null then ended_at < %(before)s else keep_until <= %(now)s end
 order by id
 limit %(most)s
   for update skip locked;
