-- Serves find: how many jobs with derived ids have a tag; no more than `most` are counted.
select count(*) as jobs
  from (
    select 1
      from penstock_tag
     where name = :name
       and value in (select value from json_each(:values))
       and job >= x'ff000000000000000000000000000000'
     limit :most
  );
