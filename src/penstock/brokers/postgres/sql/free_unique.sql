-- Serves settle, cancel, expire and delete (until ended). The job must be the holder: a key that ran
-- out may have been taken over. Whoever is taking it over at this moment is not waited for.
delete from penstock.unique_key
 where key in (
    select key
      from penstock.unique_key
     where key = %(key)s
       and job = %(job)s
       and until = %(until)s
       for update skip locked
 );
