-- Serves claim (until started), settle, cancel, expire and delete (until ended). The job must be
-- the holder: a key that ran out may have been taken over.
delete from penstock.unique_key
 where key = %(key)s
   and job = %(job)s
   and until = %(until)s;
