-- What a job noted, oldest first.
select kind, name, value, at
  from penstock_note
 where job = :job
   and (:kind is null or kind = :kind)
 order by at, id;
