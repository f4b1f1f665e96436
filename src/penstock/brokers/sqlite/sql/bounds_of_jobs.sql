-- Serves slices: ids that cut what was enqueued into parts of about as many jobs.
select s.id
  from (select id,
               jobs,
               sum(jobs) over (order by id) as so_far,
               sum(jobs) over () as total
          from penstock_sent
         where id > :after and id <= :until) as s
 where s.so_far * :parts / s.total > (s.so_far - s.jobs) * :parts / s.total;
