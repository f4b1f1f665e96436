-- Serves prune: writes that nobody added to for a day, and nobody published.
delete from penstock_staged
 where write in (
           select write
             from penstock_staged
            group by write
           having max(at) < :now - :staged
       );
