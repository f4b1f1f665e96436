-- The workers whose lease ran out. Besides, whoever holds something without being there: it was
-- given up while its claim was under way.
with lapsed as (
    select id
      from penstock.worker
     where gone = 0
       and alive_until <= %(lease_time)s
     order by id
       for update skip locked
)
select id from lapsed
 union
select l.worker
  from penstock.lease l
 where not exists (select 1 from penstock.worker w where w.id = l.worker and w.gone = 0)
 union
select j.worker
  from penstock.job j
 where j.state = 'running'
   and not exists (select 1 from penstock.worker w where w.id = j.worker and w.gone = 0);
