-- Serves stage: which of these parcels a part holds.
select id
  from penstock.staged
 where write = %(write)s
   and part = %(part)s
   and id = any (%(ids)s::uuid[])
   and body is null;
