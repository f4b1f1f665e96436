-- Serves doctor: rows for which there was no partition; counted no further than worth saying.
select 'history_other' as name,
       (select count(*) from (select 1 from penstock.history_other limit %(most)s + 1) as few) as rows
 union all
select 'sent_other',
       (select count(*) from (select 1 from penstock.sent_other limit %(most)s + 1) as few);
