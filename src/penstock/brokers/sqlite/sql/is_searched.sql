-- Serves find: whether any job has this argument declared for search.
select 1 from penstock_tag where name = ? limit 1;
