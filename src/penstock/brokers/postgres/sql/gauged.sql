-- Serves gauge: when it was done last, and which queues held something.
select value
  from penstock.meta
 where name = 'gauged';
