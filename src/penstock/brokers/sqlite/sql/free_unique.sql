-- Serves claim (until started), settle, cancel, expire and delete (until ended). The job must be
-- the holder: a key that ran out may have been taken over.
delete from penstock_unique
 where key = :key
   and job = :job
   and until = :until;
