-- Serves enqueue: many parcels; see functions/enqueue_parcels.sql.
select penstock.enqueue_parcels($1, $2, $3, $4, $5, $6, $7, $8);
