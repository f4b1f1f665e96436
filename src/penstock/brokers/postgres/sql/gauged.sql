-- Serves gauge: when it was done last, and for which queues; and whether there may be anything to say.
select (select value
          from penstock.meta
         where name = 'gauged') as value,
       exists (select 1 from penstock.parcel)
       or exists (select 1 from penstock.lease)
       or exists (select 1 from penstock.job) as holds;
