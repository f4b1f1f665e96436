-- Serves gauge: when it was done last, and which queues held something.
select value
  from penstock_meta
 where name = 'gauged';
