-- Serves gauge: when it was done last, and for which queues; and whether there may be anything to say.
select (select value
          from penstock_meta
         where name = 'gauged') as value,
       exists (select 1 from penstock_parcel)
       or exists (select 1 from penstock_lease)
       or exists (select 1 from penstock_job) as holds;
