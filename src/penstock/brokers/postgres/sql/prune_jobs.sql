-- Serves prune: jobs that ended and were kept long enough.
select id, lane, state, minute
  from penstock.job
 where state in ('failed', 'cancelled')
   and case when keep_until is null then ended_at < %(before)s else keep_until <= %(now)s end
 order by id
 limit %(most)s
   for update skip locked;
