-- Serves slices: ids that cut what was enqueued into parts of about as many jobs.
select s.id
  from (select id,
               jobs,
               sum(jobs) over (order by id)::bigint as so_far,
               sum(jobs) over ()::bigint as total
          from penstock.sent
         where id > %(after)s and id <= %(until)s) as s
 where s.so_far * %(parts)s / s.total > (s.so_far - s.jobs) * %(parts)s / s.total;
