-- What a job noted, oldest first.
select kind, name, value, at
  from penstock.note
 where job = %(job)s
   and (%(kind)s::text is null or kind = %(kind)s)
 order by at, id;
